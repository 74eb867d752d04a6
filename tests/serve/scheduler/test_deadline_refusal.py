"""The estimate of the queue's throughput, and the refusal of requests that would be late."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.errors import DeadlineExceededError, DeadlineUnmeetableError, QueueTimeoutError
from serve.scheduler.deadline_refusal import RUNS, ThroughputEstimate, check_wait


def test_nothing_is_known_before_enough_sequences_have_ended() -> None:
    throughput = ThroughputEstimate(3)
    for second in range(2):
        throughput.free(float(second), 1)
    assert throughput.wait_seconds(100, 2.0) == 0
    throughput.free(2.0, 1)
    assert throughput.wait_seconds(100, 2.0) == 100


@given(
    rows=st.integers(1, 9),
    step_seconds=st.floats(0.001, 10),
    sequences=st.integers(2, 40),
    more=st.integers(0, 20),
    prefetched=st.integers(0, 300),
)
def test_a_steady_pace_is_what_a_row_takes(
    rows: int, step_seconds: float, sequences: int, more: int, prefetched: int
) -> None:
    throughput = ThroughputEstimate(sequences)
    ends = [number * step_seconds for number in range(sequences + more)]
    for seconds in ends:
        throughput.free(seconds, rows)
    assert throughput.wait_seconds(prefetched, ends[-1]) == pytest.approx(prefetched * step_seconds / rows)


def test_a_queue_that_stands_still_is_waited_for_longer() -> None:
    throughput = ThroughputEstimate(2)
    throughput.free(0.0, 1)
    throughput.free(1.0, 1)
    assert throughput.wait_seconds(10, 1.0) == 10
    assert throughput.wait_seconds(10, 4.0) == 40


def test_only_the_latest_sequences_count() -> None:
    throughput = ThroughputEstimate(2)
    for seconds in (0.0, 100.0, 101.0):
        throughput.free(seconds, 1)
    assert throughput.wait_seconds(1, 101.0) == 1


def test_what_was_before_the_queue_was_empty_does_not_count() -> None:
    throughput = ThroughputEstimate(2)
    throughput.free(0.0, 1)
    throughput.free(100.0, 1)
    throughput.forget()
    throughput.free(200.0, 1)
    assert throughput.wait_seconds(1, 200.0) == 0


def test_a_run_may_take_what_nine_of_ten_take() -> None:
    throughput = ThroughputEstimate(2)
    assert throughput.run_seconds() == 0
    for seconds in range(1, 10):
        throughput.run(float(seconds))
    throughput.run(1000.0)
    assert 9 <= throughput.run_seconds() <= 1000
    throughput.run(5.0)
    assert throughput.run_seconds() == 9


def test_only_the_latest_runs_count() -> None:
    throughput = ThroughputEstimate(2)
    for seconds in (1000.0, *[1.0] * RUNS):
        throughput.run(seconds)
    assert throughput.run_seconds() == 1


def slow_queue() -> ThroughputEstimate:
    """Returns an estimate of one row a second, and of runs of two seconds."""
    throughput = ThroughputEstimate(2)
    for seconds in (9.0, 10.0):
        throughput.free(seconds, 1)
    throughput.run(2.0)
    return throughput


@pytest.mark.parametrize(("deadline_seconds", "met"), [(15.0, False), (15.5, True), (None, True)])
def test_a_deadline_before_the_end_of_wait_and_run_is_refused(deadline_seconds: float | None, *, met: bool) -> None:
    """Three rows start before the request: 3 s of queue time and 2 s of run time."""
    throughput = slow_queue()
    if met:
        check_wait(throughput, 3, 10.0, deadline_seconds, None)
    else:
        with pytest.raises(
            DeadlineUnmeetableError, match=r"^about 3 s to wait in the queue and 2 s to translate, but 5"
        ):
            check_wait(throughput, 3, 10.0, deadline_seconds, None)


def test_a_wait_that_exceeds_the_queue_timeout_is_refused() -> None:
    check_wait(slow_queue(), 3, 10.0, None, 3.5)
    with pytest.raises(QueueTimeoutError, match=r"^about 3 s to wait in the queue, expected at most 3 s; try again"):
        check_wait(slow_queue(), 3, 10.0, None, 3.0)


def test_without_a_queue_only_a_deadline_that_has_passed_is_refused() -> None:
    throughput = ThroughputEstimate(2)
    throughput.run(100.0)
    check_wait(throughput, 0, 10.0, 10.1, 0.0)
    with pytest.raises(DeadlineExceededError):
        check_wait(throughput, 0, 10.0, 10.0, None)
