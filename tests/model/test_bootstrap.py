"""Intervals and p-values equal sacreBLEU's, are reproducible, and correct in known cases."""

import random

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from dragoman.model.scoring import RESAMPLES, Estimate, Measure, measure

WORDS = ("the", "red", "green", "old", "house", "garden", "river", "dog", "sees", "finds", "and", "under", "today")


def make_sentences(count: int = 120) -> list[str]:
    generator = random.Random(11)
    return [" ".join(generator.choices(WORDS, k=generator.randint(5, 12))) for _ in range(count)]


def spoil(sentences: list[str], share: float, seed: int) -> list[str]:
    """Replaces a share of the words by a word that no reference contains."""
    generator = random.Random(seed)
    return [" ".join("nothing" if generator.random() < share else word for word in text.split()) for text in sentences]


REFERENCES = make_sentences()
GOOD = spoil(REFERENCES, 0.1, seed=1)
BAD = spoil(REFERENCES, 0.3, seed=3)


@pytest.mark.parametrize("metric", [BLEU, CHRF])
def test_score_and_interval_are_those_of_sacrebleu(metric: type[BLEU | CHRF]) -> None:
    expected = metric().corpus_score(GOOD, [REFERENCES], n_bootstrap=RESAMPLES)
    system = measure(metric(), GOOD, REFERENCES).system
    assert system.score == pytest.approx(expected.score)
    assert (system.low + system.high) / 2 == pytest.approx(expected._mean)
    assert (system.high - system.low) / 2 == pytest.approx(expected._ci)


def test_the_signature_has_metric_resamples_and_seed() -> None:
    signature = measure(BLEU(), GOOD, REFERENCES).signature
    assert signature.startswith("nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a|smooth:exp|version:")


def test_without_a_baseline_there_is_no_p_value() -> None:
    measured = measure(BLEU(), GOOD, REFERENCES)
    assert (measured.baseline, measured.p_value) == (None, None)


def test_a_comparison_changes_nothing_about_either_system() -> None:
    measured = measure(BLEU(), GOOD, REFERENCES, BAD)
    assert measured.system == measure(BLEU(), GOOD, REFERENCES).system
    assert measured.baseline == measure(BLEU(), BAD, REFERENCES).system


@pytest.mark.parametrize("metric", [BLEU, CHRF])
def test_a_system_does_not_differ_from_itself(metric: type[BLEU | CHRF]) -> None:
    """The library alone returns p = 0.001 here."""
    assert measure(metric(), GOOD, REFERENCES, list(GOOD)).p_value == 1


@pytest.mark.parametrize("metric", [BLEU, CHRF])
def test_a_clearly_worse_baseline_differs_significantly(metric: type[BLEU | CHRF]) -> None:
    """No resample has such a difference by chance, so the p-value is the smallest possible."""
    measured = measure(metric(), GOOD, REFERENCES, BAD)
    assert measured.baseline is not None
    assert measured.system.score > measured.baseline.score
    assert measured.p_value == pytest.approx(1 / (RESAMPLES + 1))


def test_the_test_has_two_sides() -> None:
    assert measure(BLEU(), BAD, REFERENCES, GOOD).p_value == measure(BLEU(), GOOD, REFERENCES, BAD).p_value


def test_a_difference_by_chance_is_not_significant() -> None:
    measured = measure(BLEU(), GOOD, REFERENCES, spoil(REFERENCES, 0.1, seed=2))
    assert measured.p_value is not None
    assert 0.05 < measured.p_value < 1


def test_figures_are_plain_numbers() -> None:
    """They must be serializable as JSON."""
    measured: Measure = measure(CHRF(), GOOD, REFERENCES, BAD)
    figures = (measured.system.score, measured.system.low, measured.system.high, measured.p_value)
    assert [type(figure) for figure in figures] == [float] * 4


def test_an_estimate_is_written_with_half_the_width_of_its_interval() -> None:
    assert str(Estimate(score=36.412, low=34.9, high=38.1)) == "36.41 ± 1.60"
