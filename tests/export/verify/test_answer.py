"""Where two translations part is told with the step, what each says there, and how close the decision was."""

import math

import pytest

from export.verify.answer import Answer, Labeled, Sentence, describe_difference, first_difference

SENTENCE = Sentence("a b c", (8, 9, 2))
EXPECTED = Answer((5, 6, 7), -1.5, (-0.5, -0.25, -0.5, -0.25))


def gap(source_ids: tuple[int, ...], target_ids: tuple[int, ...]) -> float:
    """Tells how many target ids it was asked after."""
    assert source_ids == SENTENCE.source_ids
    return float(len(target_ids))


def describe(actual: Answer) -> str:
    return describe_difference(SENTENCE, Labeled("he", EXPECTED), Labeled("she", actual), gap)


@pytest.mark.parametrize(
    ("target_ids", "said"),
    [
        ((9, 6, 7), "step 0: he says token 5, she says token 9; the best logit leads by 0.00e+00"),
        ((5, 6, 9), "step 2: he says token 7, she says token 9; the best logit leads by 2.00e+00"),
        ((5, 6), "step 2: he says token 7, she says the end; the best logit leads by 2.00e+00"),
        ((5, 6, 7, 8), "step 3: he says the end, she says token 8; the best logit leads by 3.00e+00"),
        ((), "step 0: he says token 5, she says the end; the best logit leads by 0.00e+00"),
    ],
)
def test_tokens_part_at_the_first_that_differs(target_ids: tuple[int, ...], said: str) -> None:
    assert describe(Answer(target_ids, -1.5)) == f"{said}: a b c"


def test_scores_part_at_the_first_that_differs() -> None:
    actual = EXPECTED._replace(score=-1.25, token_scores=(-0.5, -0.25, -0.25, -0.25))
    expected = "step 2: he says score -0.5, she says score -0.25; the best logit leads by 2.00e+00: a b c"
    assert describe(actual) == expected


def test_where_only_sums_were_written_down_these_are_told() -> None:
    expected = "step 3: he says score -0.25, she says score -1.25; the best logit leads by 3.00e+00: a b c"
    assert describe(Answer((5, 6, 7), -1.25)) == expected


def test_equal_answers_part_at_the_end() -> None:
    assert first_difference(EXPECTED, EXPECTED) == 3


def test_scores_are_told_apart_by_their_last_bit() -> None:
    assert EXPECTED.has_scores_of(EXPECTED)
    assert not EXPECTED._replace(score=math.nextafter(-1.5, 0)).has_scores_of(EXPECTED)
    assert not EXPECTED._replace(token_scores=(-0.5, -0.25, -0.5, math.nextafter(-0.25, 0))).has_scores_of(EXPECTED)


def test_no_translation_is_never_the_same() -> None:
    """A graph that gives no numbers would otherwise be the same in every company."""
    assert not Answer((), math.nan).has_scores_of(Answer((), math.nan))
