"""A difference of two translations is reported with step, tokens or scores, and lead of the best logit."""

import math

import pytest

from dragoman.export.answer import Answer, Labeled, Sentence, describe_difference, first_difference
from tests.support.cases import cases

CASES = cases(__file__)

SENTENCE = Sentence("a b c", (8, 9, 2))
EXPECTED = Answer((5, 6, 7), -1.5, (-0.5, -0.25, -0.5, -0.25))


def gap(source_ids: tuple[int, ...], target_ids: tuple[int, ...]) -> float:
    assert source_ids == SENTENCE.source_ids
    return float(len(target_ids))


def describe(actual: Answer) -> str:
    return describe_difference(SENTENCE, Labeled("expected", EXPECTED), Labeled("actual", actual), gap)


@pytest.mark.parametrize(("target_ids", "difference"), CASES["the first different token is reported"])
def test_the_first_different_token_is_reported(target_ids: tuple[int, ...], difference: str) -> None:
    assert describe(Answer(target_ids, -1.5)) == f"{difference}: a b c"


def test_the_first_different_score_is_reported_if_tokens_are_equal() -> None:
    actual = EXPECTED._replace(score=-1.25, token_scores=(-0.5, -0.25, -0.25, -0.25))
    expected = "step 2: expected: score -0.5, actual: score -0.25; the best logit leads by 2.00e+00: a b c"
    assert describe(actual) == expected


def test_sums_are_reported_if_scores_per_token_are_missing() -> None:
    expected = "step 3: expected: score -0.25, actual: score -1.25; the best logit leads by 3.00e+00: a b c"
    assert describe(Answer((5, 6, 7), -1.25)) == expected


def test_equal_answers_differ_at_the_last_step() -> None:
    assert first_difference(EXPECTED, EXPECTED) == 3


def test_scores_are_compared_bitwise() -> None:
    assert EXPECTED.has_scores_of(EXPECTED)
    assert not EXPECTED._replace(score=math.nextafter(-1.5, 0)).has_scores_of(EXPECTED)
    assert not EXPECTED._replace(token_scores=(-0.5, -0.25, -0.5, math.nextafter(-0.25, 0))).has_scores_of(EXPECTED)


def test_missing_translations_are_never_equal() -> None:
    """NaN scores would otherwise pass the invariance check."""
    assert not Answer((), math.nan).has_scores_of(Answer((), math.nan))
