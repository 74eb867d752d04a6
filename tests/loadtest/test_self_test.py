"""The self-test: the open loop measures a stall of the server, a closed loop does not."""

import asyncio
from dataclasses import replace

import pytest
from pydantic import ValidationError

from dragoman.loadtest.self_test import SelfTestCommand, SelfTestResult

FINE = SelfTestResult(2.0, 1.4, 1.38, 0.01, 6000, 0, None)


def test_the_open_loop_measures_the_expected_percentile() -> None:
    """A stall of 0.6 s in 2 s makes the p99 0.58 s."""
    result = asyncio.run(SelfTestCommand(duration_seconds=2.0, stall_seconds=0.6, rate=50.0).run())
    assert (result.sent, result.unanswered) == (100, 0)
    assert result.expected_seconds >= 0.58
    # A busy machine adds latency; the tests of the generator check the upper bound, and the closed loop.
    assert result.open_seconds >= 0.95 * result.expected_seconds
    assert result.closed_seconds > 0


@pytest.mark.parametrize(("duration_seconds", "stall_seconds"), [(300.0, 2.0), (60.0, 0.6), (3.0, 2.0)])
def test_a_stall_too_short_or_too_long_for_the_run_is_rejected(duration_seconds: float, stall_seconds: float) -> None:
    with pytest.raises(ValidationError, match="stall_seconds: "):
        SelfTestCommand(duration_seconds=duration_seconds, stall_seconds=stall_seconds)


@pytest.mark.parametrize(
    "wrong",
    [
        replace(FINE, open_seconds=1.2),
        replace(FINE, open_seconds=1.6),
        replace(FINE, closed_seconds=1.4),
        replace(FINE, unanswered=1),
        replace(FINE, void="the generator was late"),
    ],
    ids=["too low", "too high", "closed loop shows it", "unanswered", "late"],
)
def test_only_a_result_without_a_fault_passes(wrong: SelfTestResult) -> None:
    assert FINE.passed
    assert not wrong.passed
