"""Counts and percentiles: every request is counted once, and the parts of several processes add up."""

import pickle
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.clients import GONE, OK
from loadtest.plan import WARM_UP, Plan, Slice
from loadtest.scenario import LoadRequest, Objective
from loadtest.tally import Cell, LatencyHistogram, Record, Sample, Tallies, Tally

REQUEST = LoadRequest(("One.", "Two."))


def histogram_of(values: list[float]) -> LatencyHistogram:
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    return histogram


def nearest_rank(values: list[float], percent: float) -> float:
    """Slow reference: the smallest value that enough values do not exceed."""
    for value in sorted(values):
        if Fraction(sum(other <= value for other in values), len(values)) >= Fraction(str(percent)) / 100:
            return value
    raise AssertionError


def sample(latency_seconds: float, outcome: str = OK, first_seconds: float | None = None) -> Sample:
    return Sample(REQUEST, 1.0, 1.0, 1.0 + latency_seconds, outcome, first_seconds)


def tally_of(samples: list[Sample], objective: Objective | None = None) -> Tally:
    tally = Tally()
    for each in samples:
        tally.sent += 1
        tally.record(each, objective)
    return tally


SAMPLES = st.lists(
    st.builds(sample, st.floats(0.0, 5.0), st.sampled_from([OK, GONE, "429 queue_full", "timeout"])), max_size=20
)


@given(st.lists(st.integers(1, 100_000_000), min_size=1, max_size=100))
def test_percentiles_equal_the_slow_reference_to_three_digits(microseconds: list[int]) -> None:
    values = [value / 1e6 for value in microseconds]
    found = histogram_of(values)
    for percent in (50, 90, 99, 99.9, 100):
        assert found.percentile(percent) == pytest.approx(nearest_rank(values, percent), rel=0.001, abs=1e-6)


def test_an_empty_histogram_has_no_percentiles() -> None:
    assert LatencyHistogram().percentiles() is None
    assert list(LatencyHistogram().curve()) == []


@pytest.mark.parametrize(("seconds", "counted"), [(0.0, 1e-6), (-1.0, 1e-6), (1e9, 3600.0)])
def test_durations_out_of_range_are_clamped(seconds: float, counted: float) -> None:
    assert histogram_of([seconds]).percentile(50) == pytest.approx(counted)


def test_a_curve_ends_where_percentiles_would_be_single_durations() -> None:
    """1,000 durations support percentiles up to 99.9; the longest duration is added."""
    percents = [point.percent for point in histogram_of([value / 1000 for value in range(1000)]).curve()]
    assert max(percent for percent in percents if percent < 100) <= 99.9
    assert percents[-1] == 100.0


@given(st.lists(SAMPLES, max_size=3))
def test_tallies_of_several_processes_add_up_to_the_whole(parts: list[list[Sample]]) -> None:
    total = Tally.sum(pickle.loads(pickle.dumps(tally_of(part))) for part in parts)  # noqa: S301 - our own
    whole = tally_of([each for part in parts for each in part])
    assert total.sent == total.ended == whole.sent == sum(map(len, parts))
    for name in ("outcomes", "texts", "good", "last_seconds"):
        assert getattr(total, name) == getattr(whole, name)
    for name in ("latency", "first_token", "lag"):
        assert getattr(total, name).count == getattr(whole, name).count
        assert getattr(total, name).percentiles() == getattr(whole, name).percentiles()


def test_latencies_and_texts_are_those_of_answered_requests() -> None:
    tally = tally_of([sample(0.2), sample(9.0, "timeout")])
    assert tally.latency.percentile(100) == pytest.approx(0.2, rel=0.001)
    assert tally.texts == 2


def test_good_answers_are_within_the_bounds_of_the_objective() -> None:
    objective = Objective(latency_seconds=0.5)
    assert tally_of([sample(0.5), sample(0.51), sample(0.1, "timeout")], objective).good == 1
    streams = [sample(0.4, first_seconds=1.1), sample(0.4, first_seconds=1.3), sample(0.4)]
    assert tally_of(streams, Objective(latency_seconds=0.5, first_token_seconds=0.2)).good == 2


@pytest.mark.parametrize(
    ("samples", "objective", "met"),
    [
        ([sample(0.1)] * 99 + [sample(5.0)], Objective(), True),
        ([sample(0.1)] * 98 + [sample(5.0)] * 2, Objective(), False),
        ([sample(0.1)] * 99 + [sample(0.1, "timeout")], Objective(), False),
        ([sample(0.1)] * 99 + [sample(0.1, "timeout")], Objective(failed_share=0.01), True),
        ([sample(0.2, first_seconds=1.05)], Objective(first_token_seconds=0.1), True),
        ([sample(0.2, first_seconds=1.15)], Objective(first_token_seconds=0.1), False),
        ([sample(0.2)], Objective(first_token_seconds=0.1), False),
        ([], Objective(), False),
    ],
)
def test_an_objective_bounds_a_percentile_and_the_share_of_failures(
    samples: list[Sample], objective: Objective, *, met: bool
) -> None:
    assert tally_of(samples).meets(objective) is met


def test_requests_canceled_on_purpose_have_not_failed() -> None:
    tally = tally_of([sample(0.1)] * 9 + [sample(0.2, GONE)] * 90 + [sample(0.2, "timeout")])
    assert (tally.ended, tally.ok, tally.gone, tally.failed, tally.failed_share) == (100, 9, 90, 1, 0.1)


def record_of(*cells: tuple[int, str]) -> Record:
    """Returns the record of a plan with a warm-up and two windows; each cell has an answered and an open request."""
    slices = (Slice(WARM_UP, 0, 0, 1), Slice("load", 0, 1, 2), Slice("load", 1, 2, 3))
    record = Record(Plan(np.array([0.5, 1.5, 2.5]), [REQUEST] * 3, slices))
    for number, kind in cells:
        tally = tally_of([sample(0.1)])
        tally.sent += 1
        tallies: Tallies = {Cell(number, kind): tally}
        record.add(tallies)
    return record


def test_a_record_counts_by_slice_and_by_kind() -> None:
    record = record_of((0, "a"), (1, "a"), (1, "b"), (1, "a"), (2, "b"))
    assert [record.tally([1]).ok, record.tally([1, 2]).ok] == [3, 4]
    assert [record.tally_of_kind("a", "load").ok, record.tally_of_kind("b", "load", [1]).ok] == [2, 1]
    assert (record.kinds, record.sent, record.in_flight) == (["a", "b"], 10, 5)
    assert record.planned() == {0: 1, 1: 1, 2: 1}


def test_the_warm_up_is_not_a_phase() -> None:
    record = record_of()
    assert (record.phases, record.slices_of("load"), record.slices_of("load", [1])) == (["load"], [1, 2], [2])
