"""How sure a score is: confidence intervals and paired tests by bootstrap resampling (Koehn 2004), as in sacreBLEU.

The test set is drawn anew from itself 1,000 times; how far the score moves tells how much of it is the choice of the
sentences. Same seed, same figures; a signature names both. Knows metrics and text, and no system. Called by
`dragoman evaluate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

RESAMPLES = 1000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A score on all sentences, and the bounds of its 95 % confidence interval; 0 to 100."""

    score: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.score:.2f} ± {(self.high - self.low) / 2:.2f}"


@dataclass(frozen=True, slots=True)
class Measure:
    """What one metric says of a system and of the baseline that it is compared with, if there is one.

    Attributes:
        signature: sacreBLEU's: which metric, how computed, how often resampled.
        system: of the system.
        baseline: of the baseline.
        p_value: how probable a difference as large as that between the two is by the choice of sentences alone.
    """

    signature: str
    system: Estimate
    baseline: Estimate | None
    p_value: float | None


def measure(
    metric: Metric, translations: Sequence[str], references: Sequence[str], baseline: Sequence[str] | None = None
) -> Measure:
    """Measures translations, and compares them with those of a baseline.

    Args:
        metric: one of sacreBLEU's.
        translations: of the system.
        references: as many, at least one.
        baseline: as many translations of another system.
    """
    systems = [("system", translations)] if baseline is None else [("baseline", baseline), ("system", translations)]
    test = PairedTest(systems, {"metric": metric}, [references], test_type="bs", n_samples=RESAMPLES)
    signatures, scores = test()
    (signature,) = signatures.values()
    *others, ours = (result for column in scores.values() for result in column if isinstance(result, Result))
    system = _estimate(ours)
    if not others:
        return Measure(str(signature), system, None, None)
    theirs = _estimate(others[0])
    return Measure(str(signature), system, theirs, _p_value(ours, system, theirs))


def _p_value(result: Result, system: Estimate, baseline: Estimate) -> float | None:
    # sacreBLEU counts the resamples whose difference is strictly larger, and so finds equal systems to differ: of 1,000
    # differences of zero none is larger than zero. Every difference is at least as large as none.
    return 1.0 if system.score == baseline.score else result.p_value


def _estimate(result: Result) -> Estimate:
    if result.mean is None or result.ci is None:
        raise AssertionError("sacreBLEU resampled nothing")
    # sacreBLEU gives half the width of the interval, around the mean of the resamples.
    mean, half_width = float(result.mean), float(result.ci)
    return Estimate(float(result.score), mean - half_width, mean + half_width)
