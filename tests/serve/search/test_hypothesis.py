"""The score that ranks finished hypotheses: formulas, limits, and independence of other hypotheses."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.search import normalize as normalize_in_training
from serve.search.hypothesis import LEAST_COVERAGE, coverage, normalize, normalized_scores

PENALTIES = [0.0, 0.5, 0.6, 1.0, 1.7, 2.0]


@pytest.mark.parametrize(("length_penalty", "expected"), [(0.0, -6.0), (1.0, -1.5), (0.5, -3.0)])
def test_the_score_is_divided_by_a_power_of_the_length(length_penalty: float, expected: float) -> None:
    assert normalize(np.array([-6.0]), np.array([4]), length_penalty).tolist() == pytest.approx([expected])


@pytest.mark.parametrize("length_penalty", PENALTIES)
def test_hypotheses_compare_as_in_training(length_penalty: float) -> None:
    lengths = np.arange(1, 600)
    scores = -np.random.default_rng(0).exponential(20.0, len(lengths))
    expected = [
        normalize_in_training(score, length, length_penalty)
        for score, length in zip(scores.tolist(), lengths.tolist(), strict=True)
    ]
    np.testing.assert_allclose(normalize(scores, lengths, length_penalty), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        ([1.0, 1.0], 0.0),
        ([3.0, 1.5], 0.0),
        ([0.5, 2.0], math.log(0.5)),
        ([0.5, 0.25], math.log(0.125)),
        ([0.0, 1.0], math.log(LEAST_COVERAGE)),
        ([0.0] * 500, 500 * math.log(LEAST_COVERAGE)),
    ],
)
def test_coverage_is_negative_for_source_tokens_with_too_little_attention(
    attention: list[float], expected: float
) -> None:
    assert coverage(np.array([attention], np.float32)).tolist() == pytest.approx([expected], rel=1e-12)


@given(
    sums=st.lists(st.floats(0, 2, width=32), min_size=1, max_size=40),
    padding=st.lists(st.floats(1, 3, width=32), max_size=40),
)
def test_covered_padding_leaves_the_coverage_bitwise_unchanged(sums: list[float], padding: list[float]) -> None:
    padded = coverage(np.array([sums + padding], np.float32))
    assert padded.tobytes() == coverage(np.array([sums], np.float32)).tobytes()


def test_the_normalized_score_adds_a_multiple_of_the_coverage() -> None:
    ranked = normalized_scores(
        np.array([-6.0, -6.0]), np.array([4, 2]), np.array([-2.0, 0.0]), length_penalty=1.0, coverage_penalty=0.25
    )
    assert ranked.tolist() == [-2.0, -3.0]
