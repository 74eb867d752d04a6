"""The estimate of the queue's throughput, and the refusal of requests that would be late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.errors import DeadlineExceededError, DeadlineUnmeetableError, QueueTimeoutError
from dragoman.serve.scheduler.request_scheduler import RUNS, ThroughputEstimate, check_wait


def observed(window: int, *freed: tuple[float, int]) -> ThroughputEstimate:
    """Returns an estimate after these times and numbers of freed rows."""
    throughput = ThroughputEstimate(window)
    for seconds, rows in freed:
        throughput.free(seconds, rows)
    return throughput


def test_the_rate_is_unknown_until_the_window_is_full_and_starts_with_its_first_sequence() -> None:
    assert observed(3, (0.0, 5), (1.0, 1)).wait_seconds(100, 2.0) == 0
    assert observed(3, (0.0, 5), (1.0, 1), (2.0, 3)).wait_seconds(100, 2.0) == 50
    assert observed(2, (0.0, 1), (100.0, 1), (101.0, 1)).wait_seconds(1, 101.0) == 1


@given(
    rows=st.integers(1, 9),
    step_seconds=st.floats(0.001, 10),
    sequences=st.integers(2, 40),
    more=st.integers(0, 20),
    ahead=st.integers(0, 300),
)
def test_a_steady_pace_is_what_rows_take(rows: int, step_seconds: float, sequences: int, more: int, ahead: int) -> None:
    ends = [number * step_seconds for number in range(sequences + more)]
    throughput = observed(sequences, *((seconds, rows) for seconds in ends))
    assert throughput.wait_seconds(ahead, ends[-1]) == pytest.approx(ahead * step_seconds / rows)


def test_the_estimate_of_a_stalled_queue_grows() -> None:
    throughput = observed(2, (0.0, 1), (1.0, 1))
    assert [throughput.wait_seconds(10, now_seconds) for now_seconds in (1.0, 4.0)] == [10, 40]


def test_rows_freed_before_the_queue_was_empty_do_not_count() -> None:
    throughput = observed(2, (0.0, 1), (100.0, 1))
    throughput.forget()
    throughput.free(200.0, 1)
    assert throughput.wait_seconds(1, 200.0) == 0


def test_a_run_may_take_what_nine_of_ten_of_the_latest_runs_take() -> None:
    throughput = ThroughputEstimate(2)
    assert throughput.run_seconds() == 0
    for seconds in (*range(1, 10), 1000, 5):
        throughput.run(float(seconds))
    assert throughput.run_seconds() == 9
    for _ in range(RUNS):
        throughput.run(1.0)
    assert throughput.run_seconds() == 1


@pytest.fixture
def slow_queue() -> ThroughputEstimate:
    """A queue of one row per second, and runs of two seconds: after three rows, a request ends in 5 s."""
    throughput = observed(2, (9.0, 1), (10.0, 1))
    throughput.run(2.0)
    return throughput


@pytest.mark.parametrize(
    ("deadline_seconds", "timeout_seconds", "error", "values"),
    [
        (15.0, None, DeadlineUnmeetableError, {"3 s", "2 s", "5 s"}),
        (None, 2.9, QueueTimeoutError, {"3 s", "2.9 s"}),
        (None, 3.0, QueueTimeoutError, {"3 s"}),
        (10.0, None, DeadlineExceededError, set()),
    ],
)
def test_a_request_that_would_be_late_is_refused_with_its_times(
    slow_queue: ThroughputEstimate,
    deadline_seconds: float | None,
    timeout_seconds: float | None,
    error: type[Exception],
    values: set[str],
) -> None:
    with pytest.raises(error) as refused:
        check_wait(slow_queue.wait_seconds(3, 10.0), slow_queue.run_seconds(), 10.0, deadline_seconds, timeout_seconds)
    assert all(value in str(refused.value) for value in values)


@pytest.mark.parametrize(("deadline_seconds", "timeout_seconds"), [(None, None), (15.5, None), (None, 3.5)])
def test_a_request_that_would_be_in_time_is_not_refused(
    slow_queue: ThroughputEstimate, deadline_seconds: float | None, timeout_seconds: float | None
) -> None:
    check_wait(slow_queue.wait_seconds(3, 10.0), slow_queue.run_seconds(), 10.0, deadline_seconds, timeout_seconds)


def test_without_a_queue_only_a_deadline_that_has_passed_is_refused() -> None:
    check_wait(0.0, 2.0, 10.0, 10.1, 0.0)
    with pytest.raises(DeadlineExceededError):
        check_wait(0.0, 2.0, 10.0, 10.0, None)
