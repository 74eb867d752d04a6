"""When refusals are sent; `test_limits.py` asks a server for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.grpc.pace import MANY_CALLERS, MAX_SECONDS, REFUSALS_AT_ONCE, REFUSALS_PER_SECOND, RefusalPace

ROUNDING_SECONDS = 1e-6


def test_some_refusals_are_sent_at_once_and_further_ones_at_a_rate() -> None:
    pace = RefusalPace(lambda: 0.0)
    delays = [pace.count("first") for _ in range(REFUSALS_AT_ONCE + 3)]
    assert delays[:REFUSALS_AT_ONCE] == pytest.approx([0.0] * REFUSALS_AT_ONCE)
    assert delays[REFUSALS_AT_ONCE:] == pytest.approx([number / REFUSALS_PER_SECOND for number in (1, 2, 3)])
    assert pace.count("second") == 0.0


@given(st.lists(st.floats(0.0, 1.0), max_size=50), st.integers(1, 500))
def test_no_refusal_waits_for_longer_than_the_limit(pauses: list[float], burst: int) -> None:
    now_seconds = 0.0
    pace = RefusalPace(lambda: now_seconds)
    for pause in pauses:
        assert all(0.0 <= pace.count("caller") <= MAX_SECONDS + ROUNDING_SECONDS for _ in range(burst))
        now_seconds += pause


def test_a_caller_that_makes_few_errors_never_waits() -> None:
    now_seconds = 0.0
    pace = RefusalPace(lambda: now_seconds)
    for _ in range(10 * REFUSALS_AT_ONCE):
        assert pace.count("caller") == 0.0
        now_seconds += 1.01 / REFUSALS_PER_SECOND


def test_callers_are_forgotten_when_they_may_send_all_at_once_again() -> None:
    now_seconds = 0.0
    pace = RefusalPace(lambda: now_seconds)
    for caller in range(MANY_CALLERS):
        pace.count(str(caller))
    now_seconds = 1.0
    pace.count("another")
    assert len(pace._free_seconds) == 1
