"""How long a newcomer waits, as the pace of the queue tells."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serve.scheduler.admission import RUNS, Pace


def test_nothing_is_known_before_enough_sequences_have_ended() -> None:
    pace = Pace(3)
    for second in range(2):
        pace.free(float(second), 1)
    assert pace.wait_seconds(100, 2.0) == 0
    pace.free(2.0, 1)
    assert pace.wait_seconds(100, 2.0) == 100


@given(
    rows=st.integers(1, 9),
    step_seconds=st.floats(0.001, 10),
    sequences=st.integers(2, 40),
    more=st.integers(0, 20),
    ahead=st.integers(0, 300),
)
def test_a_steady_pace_is_what_a_row_takes(
    rows: int, step_seconds: float, sequences: int, more: int, ahead: int
) -> None:
    pace = Pace(sequences)
    ends = [number * step_seconds for number in range(sequences + more)]
    for seconds in ends:
        pace.free(seconds, rows)
    assert pace.wait_seconds(ahead, ends[-1]) == pytest.approx(ahead * step_seconds / rows)


def test_a_queue_that_stands_still_is_waited_for_longer() -> None:
    pace = Pace(2)
    pace.free(0.0, 1)
    pace.free(1.0, 1)
    assert pace.wait_seconds(10, 1.0) == 10
    assert pace.wait_seconds(10, 4.0) == 40


def test_only_the_latest_sequences_count() -> None:
    pace = Pace(2)
    for seconds in (0.0, 100.0, 101.0):
        pace.free(seconds, 1)
    assert pace.wait_seconds(1, 101.0) == 1


def test_what_was_before_the_queue_was_empty_does_not_count() -> None:
    pace = Pace(2)
    pace.free(0.0, 1)
    pace.free(100.0, 1)
    pace.forget()
    pace.free(200.0, 1)
    assert pace.wait_seconds(1, 200.0) == 0


def test_a_run_may_take_what_nine_of_ten_take() -> None:
    pace = Pace(2)
    assert pace.run_seconds() == 0
    for seconds in range(1, 10):
        pace.run(float(seconds))
    pace.run(1000.0)
    assert 9 <= pace.run_seconds() <= 1000
    pace.run(5.0)
    assert pace.run_seconds() == 9


def test_only_the_latest_runs_count() -> None:
    pace = Pace(2)
    for seconds in (1000.0, *[1.0] * RUNS):
        pace.run(seconds)
    assert pace.run_seconds() == 1
