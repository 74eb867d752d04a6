"""The score that ranks finished hypotheses: formulas and limits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.search import normalize as normalize_in_training
from dragoman.serve.search.hypothesis import MIN_COVERAGE, coverage, normalize, normalized_score


@pytest.mark.parametrize(("length_penalty", "expected"), [(0.0, -6.0), (1.0, -1.5), (0.5, -3.0)])
def test_the_score_is_divided_by_a_power_of_the_length(length_penalty: float, expected: float) -> None:
    assert normalize(-6.0, 4, length_penalty) == pytest.approx(expected)


@pytest.mark.parametrize("length_penalty", [0.0, 0.5, 0.6, 1.0, 1.7, 2.0])
def test_hypotheses_compare_as_in_training(length_penalty: float) -> None:
    for length, cost in enumerate(np.random.default_rng(0).exponential(20.0, 600).tolist(), 1):
        expected = normalize_in_training(-cost, length, length_penalty)
        assert normalize(-cost, length, length_penalty) == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        ([1.0, 1.0], 0.0),
        ([3.0, 1.5], 0.0),
        ([0.5, 2.0], math.log(0.5)),
        ([0.5, 0.25], math.log(0.125)),
        ([0.0, 1.0], math.log(MIN_COVERAGE)),
        ([0.0] * 500, 500 * math.log(MIN_COVERAGE)),
    ],
)
def test_coverage_is_negative_for_source_tokens_with_little_attention(attention: list[float], expected: float) -> None:
    assert coverage(np.array(attention, np.float32)) == pytest.approx(expected, rel=1e-12)


@given(
    sums=st.lists(st.floats(0, 2, width=32), min_size=1, max_size=40),
    padding=st.lists(st.floats(1, 3, width=32), max_size=40),
)
def test_covered_tokens_at_the_end_change_no_bit_of_the_coverage(sums: list[float], padding: list[float]) -> None:
    assert coverage(np.array(sums + padding, np.float32)) == coverage(np.array(sums, np.float32))


def test_the_normalized_score_adds_a_multiple_of_the_coverage() -> None:
    assert normalized_score(-6.0, 4, -2.0, length_penalty=1.0, coverage_penalty=0.25) == -2.0
