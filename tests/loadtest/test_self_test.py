"""The generator proved on a server that stands still: the open loop tells what users felt, a closed one does not."""

import asyncio
from dataclasses import replace

import pytest
from pydantic import ValidationError

from loadtest.self_test import SelfTestCommand, SelfTestResult

FINE = SelfTestResult(2.0, 1.4, 1.38, 0.01, 6000, 0, None)


def test_a_stall_is_charged_as_arithmetic_says() -> None:
    """0.6 s of stall in 2 s make the 90th percentile 0.4 s; a closed loop sees one slow request of many."""
    command = SelfTestCommand(duration_seconds=2.0, stall_seconds=0.6, percentile=90.0, rate=50.0, max_lag_seconds=60.0)
    result = asyncio.run(command.run())
    assert (result.sent, result.unanswered) == (100, 0)
    assert result.expected_seconds >= 0.4
    # A busy machine makes users wait even longer; that nobody is charged too much, the generator's own tests show.
    assert result.open_seconds >= 0.95 * result.expected_seconds
    assert result.closed_seconds < result.open_seconds / 2


@pytest.mark.parametrize(("duration_seconds", "stall_seconds"), [(300.0, 2.0), (60.0, 0.6), (3.0, 2.0)])
def test_a_stall_that_the_percentile_does_not_feel_or_that_outlasts_the_run_proves_nothing(
    duration_seconds: float, stall_seconds: float
) -> None:
    with pytest.raises(ValidationError, match=r"stall_seconds: .*: expected more than .* and less than"):
        SelfTestCommand(duration_seconds=duration_seconds, stall_seconds=stall_seconds)


def test_a_generator_that_tells_the_truth_passes() -> None:
    assert FINE.passed


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
def test_any_other_does_not(wrong: SelfTestResult) -> None:
    assert not wrong.passed
