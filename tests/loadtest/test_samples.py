"""Counts and percentiles: every request is counted once, and the parts of several processes add up."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.loadtest.clients import GONE, OK
from dragoman.loadtest.plan import WARM_UP, LoadPlan, Part
from dragoman.loadtest.samples import Book, Durations, Percentiles, Samples, curve, percentile
from dragoman.loadtest.scenario import LoadRequest, Objective, RequestKind

TEXTS_OF_A_REQUEST = ("One.", "Two.")
# Latency, outcome, time to the first part.
Ended = tuple[float, str, float]


def ended(latency_seconds: float, outcome: str = OK, first_seconds: float = math.nan) -> Ended:
    return latency_seconds, outcome, first_seconds


def samples_of(requests: list[Ended], kind: str = "requests", intended_seconds: float = 1.0) -> Samples:
    book = Book()
    for latency_seconds, outcome, first_seconds in requests:
        book.begin(intended_seconds)
        times = (0.0, 0.0, latency_seconds, first_seconds)
        intended, sent, end, first = (intended_seconds + seconds for seconds in times)
        book.end(LoadRequest(TEXTS_OF_A_REQUEST, RequestKind(name=kind)), outcome, (intended, sent, end, first))
    return book.take()


def durations(values: list[float]) -> Durations:
    return np.sort(values)


def nearest_rank(values: list[float], percent: float) -> float:
    """Slow reference: the smallest value that enough values do not exceed."""
    for value in sorted(values):
        if Fraction(sum(other <= value for other in values), len(values)) >= Fraction(str(percent)) / 100:
            return value
    raise AssertionError


OUTCOMES = [OK, GONE, "429 queue_full", "timeout"]
REQUESTS = st.lists(st.builds(ended, st.floats(0.0, 5.0), st.sampled_from(OUTCOMES)), max_size=20)


@given(st.lists(st.floats(1e-6, 100.0), min_size=1, max_size=100))
def test_percentiles_equal_the_slow_reference(values: list[float]) -> None:
    for percent in (50, 90, 99, 99.9, 100):
        assert percentile(durations(values), percent) == nearest_rank(values, percent)


@pytest.mark.parametrize(("percent", "rank"), [(99.9, 999), (99.0, 990), (55.0, 550), (7.0, 70)])
def test_a_percentile_of_a_whole_rank_is_that_rank(percent: float, rank: int) -> None:
    assert percentile(np.arange(1.0, 1001.0), percent) == rank


def test_no_durations_have_no_percentiles() -> None:
    assert Percentiles.of(durations([])) is None
    assert list(curve(durations([]))) == []


def test_a_curve_ends_where_percentiles_would_be_single_durations() -> None:
    """1,000 durations support percentiles up to 99.9; the longest duration is added."""
    percents = [point.percent for point in curve(np.arange(1000.0))]
    assert max(percent for percent in percents if percent < 100) <= 99.9
    assert percents[-1] == 100.0


@given(st.lists(REQUESTS, max_size=3))
def test_samples_of_several_processes_add_up_to_the_whole(parts: list[list[Ended]]) -> None:
    joined = Samples.join(map(samples_of, parts))
    whole = samples_of([item for part in parts for item in part])
    assert len(joined.begun) == joined.outcomes.total() == sum(map(len, parts))
    assert joined.outcomes == whole.outcomes
    assert joined.last_seconds == whole.last_seconds
    for name in ("latency", "first_token", "lag"):
        assert np.array_equal(getattr(joined, name), getattr(whole, name))


def test_latencies_and_texts_are_those_of_answered_requests() -> None:
    samples = samples_of([ended(0.25), ended(9.0, "timeout")])
    assert samples.latency.tolist() == [0.25]
    assert samples.answered["texts"].tolist() == [2]


def test_good_answers_are_within_the_bounds_of_the_objective() -> None:
    assert samples_of([ended(0.5), ended(0.51), ended(0.1, "timeout")]).good(Objective(latency_seconds=0.5)) == 1
    streams = samples_of([ended(0.4, first_seconds=0.1), ended(0.4, first_seconds=0.3), ended(0.4)])
    assert streams.good(Objective(latency_seconds=0.5, first_token_seconds=0.2)) == 2


@pytest.mark.parametrize(
    ("requests", "objective", "met"),
    [
        ([ended(0.1)] * 99 + [ended(5.0)], Objective(), True),
        ([ended(0.1)] * 98 + [ended(5.0)] * 2, Objective(), False),
        ([ended(0.1)] * 99 + [ended(0.1, "timeout")], Objective(), False),
        ([ended(0.1)] * 99 + [ended(0.1, "timeout")], Objective(failed_share=0.01), True),
        ([ended(0.2, first_seconds=0.05)], Objective(first_token_seconds=0.1), True),
        ([ended(0.2, first_seconds=0.15)], Objective(first_token_seconds=0.1), False),
        ([ended(0.2)], Objective(first_token_seconds=0.1), False),
        ([], Objective(), False),
    ],
)
def test_an_objective_bounds_a_percentile_and_failures(requests: list[Ended], objective: Objective, met: bool) -> None:
    assert samples_of(requests).meets(objective) is met


def test_requests_canceled_on_purpose_have_not_failed() -> None:
    samples = samples_of([ended(0.1)] * 9 + [ended(0.2, GONE)] * 90 + [ended(0.2, "timeout")])
    assert (samples.outcomes.total(), samples.errors) == (100, {"timeout": 1})
    assert samples.meets(Objective(failed_share=0.1))
    assert not samples.meets(Objective(failed_share=0.09))


def test_requests_belong_to_intervals_by_their_intended_time_and_to_kinds() -> None:
    parts = [samples_of([ended(0.1)], kind, seconds) for seconds, kind in ((0.0, "a"), (1.0, "a"), (1.5, "b"))]
    samples = Samples.join([*parts, Samples(np.array([1.9]))])
    assert [len(samples.between(0.0, 1.0).begun), len(samples.between(1.0).begun)] == [1, 3]
    assert (samples.in_flight, samples.between(1.0).outcomes) == (1, {OK: 2})
    assert {kind: item.outcomes[OK] for kind, item in samples.kinds().items()} == {"a": 2, "b": 1}


def test_the_warm_up_is_not_a_phase() -> None:
    warm_up, *phases = (Part(WARM_UP, 0, 1), Part("load", 1, 2), Part("more", 2, 3))
    plan = LoadPlan(np.array([0.5, 1.0, 2.5]), [LoadRequest(("One.",))] * 3, (warm_up, *phases))
    assert plan.measured == phases
    assert [plan.planned(1.0, 2.0), plan.planned(0.0, 3.0)] == [1, 3]
