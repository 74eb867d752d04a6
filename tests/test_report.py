"""The report of a load run: percentiles, accounting and the verdict."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.generator import OK, Sample
from loadtest.report import Distribution, Report, format_table, summarize


def make_report(
    samples: list[Sample],
    *,
    warm_up_seconds: float = 0.0,
    duration_seconds: float = 1.0,
    texts_per_request: int = 1,
    max_lag_seconds: float = 0.01,
) -> Report:
    return summarize(
        samples,
        protocol="grpc",
        warm_up_seconds=warm_up_seconds,
        duration_seconds=duration_seconds,
        texts_per_request=texts_per_request,
        max_lag_seconds=max_lag_seconds,
    )


def nearest_rank(values: list[float], percent: int) -> float:
    """The slow reference: walks up the values until enough of them are not exceeded."""
    for value in sorted(values):
        if Fraction(sum(other <= value for other in values), len(values)) >= Fraction(percent, 100):
            return value
    raise AssertionError


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=250))
def test_percentiles_equal_the_slow_reference(values: list[float]) -> None:
    assert Distribution.of(values) == Distribution(
        p50=nearest_rank(values, 50), p90=nearest_rank(values, 90), p99=nearest_rank(values, 99), max=max(values)
    )


def test_no_values_have_no_distribution() -> None:
    assert Distribution.of([]) is None


outcomes = st.sampled_from([OK, "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED queue_full", "timeout"])


@given(st.lists(outcomes, max_size=50))
def test_every_request_is_counted_once(outcomes: list[str]) -> None:
    report = make_report([Sample(0.0, 0.0, 0.1, outcome) for outcome in outcomes])
    assert report.sent == len(outcomes) == report.ok + sum(report.errors.values())


def test_failures_are_counted_by_reason() -> None:
    samples = [Sample(0.0, 0.0, 0.1, outcome) for outcome in ("timeout", OK, "timeout", "429 queue_full")]
    assert make_report(samples).errors == {"429 queue_full": 1, "timeout": 2}


def test_latencies_are_those_of_answered_requests() -> None:
    report = make_report([Sample(0.0, 0.0, 0.2, OK), Sample(0.0, 0.0, 9.0, "timeout")])
    assert report.latency_seconds is not None
    assert report.latency_seconds.max == 0.2


def test_the_warm_up_is_left_out() -> None:
    report = make_report([Sample(0.9, 0.9, 5.0, "timeout"), Sample(1.0, 1.0, 1.1, OK)], warm_up_seconds=1.0)
    assert (report.sent, report.ok, report.errors) == (1, 1, {})


def test_throughput_counts_until_the_last_answer() -> None:
    """A server that answers a second's load in two seconds has half the throughput."""
    samples = [Sample(1.0 + i / 10, 1.0 + i / 10, 3.0, OK) for i in range(10)]
    report = make_report(samples, warm_up_seconds=1.0, texts_per_request=4)
    assert report.requests_per_second == pytest.approx(5.0)
    assert report.texts_per_second == pytest.approx(20.0)


def test_a_lag_at_the_bound_stands() -> None:
    assert make_report([Sample(0.0, 0.5, 0.6, OK)], max_lag_seconds=0.5).void is None


def test_a_lag_above_the_bound_makes_the_run_void() -> None:
    assert make_report([Sample(0.0, 0.5, 0.6, OK)], max_lag_seconds=0.4).void is not None


def test_a_run_without_requests_is_void() -> None:
    assert make_report([]).void is not None


def test_the_table_names_counts_failures_and_the_verdict() -> None:
    table = format_table(make_report([Sample(0.0, 0.1, 0.2, OK), Sample(0.0, 0.1, 0.2, "timeout")]))
    assert "2 sent, 1 ok, 1 failed" in table
    assert "1 x timeout" in table
    assert "VOID: the generator was late: lag p99 100.0 ms exceeds 10.0 ms" in table
