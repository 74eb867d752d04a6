"""Histograms of durations: percentiles to three digits, over several processes."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.tally import LatencyHistogram


def durations_of(values: list[float]) -> LatencyHistogram:
    durations = LatencyHistogram()
    for value in values:
        durations.record(value)
    return durations


def nearest_rank(values: list[float], percent: float) -> float:
    """Slow reference: the smallest value that enough values do not exceed."""
    for value in sorted(values):
        if Fraction(sum(other <= value for other in values), len(values)) >= Fraction(str(percent)) / 100:
            return value
    raise AssertionError


@given(st.lists(st.integers(1, 100_000_000), min_size=1, max_size=100))
def test_percentiles_equal_the_slow_reference_to_three_digits(microseconds: list[int]) -> None:
    values = [value / 1e6 for value in microseconds]
    found = durations_of(values)
    for percent in (50, 90, 99, 99.9, 100):
        assert found.percentile(percent) == pytest.approx(nearest_rank(values, percent), rel=0.001, abs=1e-6)


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert LatencyHistogram().percentiles() is None
    assert LatencyHistogram().percentile(50) is None
    assert list(LatencyHistogram().curve()) == []


@given(st.lists(st.lists(st.floats(0.0, 10.0), max_size=20), min_size=1, max_size=4))
def test_histograms_of_several_processes_add_up(parts: list[list[float]]) -> None:
    merged = LatencyHistogram()
    for part in parts:
        merged.add_packed(durations_of(part).pack())
    whole = durations_of([value for part in parts for value in part])
    assert merged.count == whole.count
    assert merged.percentiles() == whole.percentiles()


@pytest.mark.parametrize(("seconds", "counted"), [(0.0, 1e-6), (-1.0, 1e-6), (1e9, 3600.0)])
def test_durations_out_of_range_are_clamped(seconds: float, counted: float) -> None:
    assert durations_of([seconds]).percentile(50) == pytest.approx(counted)


def test_a_curve_ends_where_percentiles_would_be_single_durations() -> None:
    """1,000 durations support percentiles up to 99.9; the longest duration is added."""
    percents = [percent for percent, _ in durations_of([value / 1000 for value in range(1000)]).curve()]
    assert max(percent for percent in percents if percent < 100) <= 99.9
    assert percents[-1] == 100.0
