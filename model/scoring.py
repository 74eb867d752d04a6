"""How sure a score is: confidence intervals and paired tests by bootstrap resampling (Koehn 2004), as in sacreBLEU.

The test set is drawn anew from itself 1,000 times; how far the score moves tells how much of it is the choice of the
sentences. Same seed, same figures; a signature names both. Knows metrics and text, and no system. Called by
`dragoman evaluate`.

How good translations are, against one reference each: BLEU, chrF, exact matches and length, by sacreBLEU.

On the text as it is: cased and detokenized, as sacreBLEU expects it. Knows nothing of where translations come from, and
no chance: `model.scoring` tells how sure a score is. Called by validation in training and by `dragoman
evaluate`.

BLEU as papers on Multi30k report it: on lowercased, punctuation-normalized text in Moses' tokens.

Such a score is comparable with theirs and not with sacreBLEU's on the text as it is. With these steps the references
of the test set of 2016 have exactly the published numbers of tokens. Called by `dragoman evaluate`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version

from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.significance import PairedTest, Result
from sacremoses import MosesPunctNormalizer, MosesTokenizer


@dataclass(frozen=True, slots=True)
class Quality:
    """Scores of a set of translations.

    Attributes:
        bleu: BLEU (Papineni et al. 2002), 0 to 100.
        chrf: chrF (Popovic 2015), 0 to 100.
        exact: share of the translations that equal their reference in every character, 0 to 1.
        length_ratio: tokens of all translations over tokens of all references, in BLEU's tokens; below 1, BLEU's
            brevity penalty applies.
    """

    bleu: float
    chrf: float
    exact: float
    length_ratio: float


def score(translations: Sequence[str], references: Sequence[str]) -> Quality:
    """Scores translations against as many references, at least one."""
    bleu = BLEU().corpus_score(translations, [references])
    chrf = CHRF().corpus_score(translations, [references])
    exact = sum(ours == theirs for ours, theirs in zip(translations, references, strict=True)) / len(references)
    return Quality(bleu.score, chrf.score, exact, bleu.ratio)


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


def measure_as_literature(
    translations: Sequence[str], references: Sequence[str], language: str, baseline: Sequence[str] | None = None
) -> Measure:
    """Measures BLEU as the literature does; arguments as those of `model.scoring.measure`.

    `language` is the ISO 639-1 code of the references' language. The signature tells of the preparation too.
    """
    ours, theirs = (tokenize_as_literature(lines, language) for lines in (translations, references))
    others = None if baseline is None else tokenize_as_literature(baseline, language)
    measured = measure(BLEU(tokenize="none", force=True), ours, theirs, others)
    preparation = f"prepared:lowercase+moses_normalize+moses_tokenize|sacremoses:{version('sacremoses')}"
    return replace(measured, signature=f"{measured.signature}|{preparation}")


def tokenize_as_literature(lines: Sequence[str], language: str) -> list[str]:
    """Returns each line lowercased, its punctuation normalized, its tokens separated by spaces."""
    normalizer, tokenizer = MosesPunctNormalizer(language), MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(line.lower().strip()), escape=True, return_str=True) for line in lines
    ]
