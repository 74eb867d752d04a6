"""Comparison of translations with PyTorch, the graph decoder and golden sentences."""

import math
from collections.abc import Sequence

import pytest

from dragoman.export.answer import Answer, Outcome, Sentence
from dragoman.export.verify.checks import Demands, check_against_graph_decoder, check_against_pytorch, check_golden
from dragoman.serve.bundle.manifest import GoldenSentence

SENTENCES = [Sentence(f"sentence {number}", (number, 2)) for number in range(4)]
ANSWERS = [Answer((5, number), -1.0, (-0.5, -0.25, -0.25)) for number in range(4)]
GOLDEN = [
    GoldenSentence(
        source_language="en",
        target_language="de",
        source=sentence.text,
        source_ids=sentence.source_ids,
        target_ids=answer.target_ids,
        target="",
    )
    for sentence, answer in zip(SENTENCES, ANSWERS, strict=True)
]


def gap(_: tuple[int, ...], __: tuple[int, ...]) -> float:
    return 0.0


def with_last(answer: Answer) -> list[Answer]:
    return [*ANSWERS[:-1], answer]


def compare(actual: Sequence[Answer], minimum_identical: float, score_tolerance: float) -> Outcome:
    demands = Demands(minimum_identical, score_tolerance)
    return check_against_pytorch("greedy", SENTENCES, ANSWERS, actual, demands=demands, gap=gap)


@pytest.mark.parametrize(("minimum", "verdict"), [(0.76, "FAIL"), (0.75, "pass"), (0.0, "pass")])
def test_the_required_share_of_translations_must_be_identical(minimum: float, verdict: str) -> None:
    outcome = compare(with_last(Answer((5, 9), -1.0)), minimum, 0.1)
    assert outcome.verdict == verdict
    assert outcome.figure.startswith("3 of 4 translations have PyTorch's tokens")
    assert (outcome.difference is None) == (verdict == "pass")


@pytest.mark.parametrize(("score", "verdict"), [(-1.25, "pass"), (-1.5, "FAIL"), (math.nan, "FAIL")])
def test_scores_of_identical_translations_must_be_near(score: float, verdict: str) -> None:
    outcome = compare(with_last(Answer((5, 3), score)), 1.0, 0.25)
    assert outcome.verdict == verdict
    assert outcome.difference is None or "sentence 3" in outcome.difference


def test_scores_of_different_translations_are_not_compared() -> None:
    assert compare(with_last(Answer((5, 9), -99.0)), 0.5, 0.25).verdict == "pass"


def test_a_limit_that_is_not_required_is_not_printed() -> None:
    assert "required" not in compare(ANSWERS, 0.0, math.inf).figure
    assert "permitted" not in compare(ANSWERS, 0.0, math.inf).figure


def test_the_engine_must_match_the_graph_decoder_bitwise() -> None:
    assert check_against_graph_decoder(SENTENCES, ANSWERS, ANSWERS, gap).verdict == "pass"
    for wrong in (
        ANSWERS[3]._replace(target_ids=(5, 9)),
        ANSWERS[3]._replace(score=math.nextafter(-1.0, 0)),
        ANSWERS[3]._replace(token_scores=(-0.5, -0.25, math.nextafter(-0.25, 0))),
    ):
        outcome = check_against_graph_decoder(SENTENCES, ANSWERS, with_last(wrong), gap)
        assert outcome.verdict == "FAIL"
        assert outcome.figure.startswith("3 of 4 translations")
        assert outcome.difference is not None
        assert outcome.difference.endswith("sentence 3")


def test_a_golden_sentence_must_have_its_recorded_translation() -> None:
    sources = [item.source_ids for item in GOLDEN]
    assert check_golden(GOLDEN, sources, ANSWERS, gap).verdict == "pass"
    outcome = check_golden(GOLDEN, sources, with_last(Answer((5, 9), -1.0)), gap)
    assert outcome.verdict == "FAIL"
    assert outcome.difference is not None
    assert outcome.difference.startswith("step 1: trained model: token 3, engine: token 9")


def test_a_golden_sentence_must_have_its_recorded_source_ids() -> None:
    outcome = check_golden(GOLDEN, [*(item.source_ids for item in GOLDEN[:-1]), (7, 7, 2)], ANSWERS, gap)
    assert outcome.verdict == "FAIL"
    assert outcome.difference is not None
    assert outcome.difference.startswith("source ids ")
    assert outcome.difference.endswith("sentence 3")
