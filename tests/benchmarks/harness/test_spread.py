"""Figures of rounds become a median and their range; ratios are taken inside each round."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.harness.rounds import Spread, format_spread, ratio

SPEEDS = st.floats(min_value=1, max_value=1e6)


def test_the_median_is_not_moved_by_one_bad_round() -> None:
    assert Spread.of([100.0, 101.0, 7.0]) == Spread(100.0, 7.0, 101.0)


def test_a_ratio_compares_figures_of_the_same_round() -> None:
    """A machine that is half as fast in one round halves both, and the ratio stays."""
    assert ratio([200.0, 100.0, 220.0], [100.0, 50.0, 100.0]) == Spread(2.0, 2.0, 2.2)


def test_systems_of_different_rounds_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratio([1.0, 2.0], [1.0])


@given(st.lists(st.tuples(SPEEDS, SPEEDS), min_size=1))
def test_the_median_of_ratios_lies_between_the_smallest_and_the_largest(pairs: list[tuple[float, float]]) -> None:
    system, baseline = zip(*pairs, strict=True)
    spread = ratio(system, baseline)
    assert spread.low <= spread.median <= spread.high


def test_figures_are_followed_by_their_ratios_to_a_base() -> None:
    assert format_spread([2000.0, 1000.0, 2200.0], [1000.0, 500.0, 1000.0]) == "2,000, 2.00x (2.00-2.20)"


def test_small_figures_have_one_decimal() -> None:
    assert format_spread([3.26, 99.0, 1.0], None) == "3.3"
