"""Objectives: when they are met, and their text form."""

import pytest
from pydantic import ValidationError

from loadtest.clients import GONE, OK
from loadtest.objective import Objective
from loadtest.scenario import LoadRequest
from loadtest.tally import Sample, Tally


def tally_of(latencies: list[float], failed: int = 0, first_seconds: float | None = None) -> Tally:
    tally = Tally()
    outcomes = [(seconds, OK) for seconds in latencies] + [(1.0, "timeout")] * failed
    for seconds, outcome in outcomes:
        tally.sent += 1
        tally.record(Sample(LoadRequest(("One.",)), 0.0, 0.0, seconds, outcome, first_seconds), Objective().bound)
    return tally


def test_a_percentile_below_the_bound_meets_it() -> None:
    assert Objective(latency_seconds=0.3).is_met(tally_of([0.1] * 99 + [5.0]))


def test_a_percentile_above_the_bound_does_not_meet_it() -> None:
    assert not Objective(latency_seconds=0.3).is_met(tally_of([0.1] * 98 + [5.0] * 2))


def test_failures_are_allowed_only_up_to_the_failed_share() -> None:
    tally = tally_of([0.1] * 99, failed=1)
    assert not Objective().is_met(tally)
    assert Objective(failed_share=0.01).is_met(tally)


def test_requests_canceled_on_purpose_have_not_failed() -> None:
    tally = tally_of([0.1] * 9)
    for outcome in [GONE] * 90 + ["timeout"]:
        tally.record(Sample(LoadRequest(("One.",)), 0.0, 0.0, 0.2, outcome, None), Objective().bound)
    assert (tally.ended, tally.ok, tally.gone, tally.failed, tally.failed_share) == (100, 9, 90, 1, 0.1)
    assert Objective(failed_share=0.1).is_met(tally)
    assert not Objective(failed_share=0.09).is_met(tally)


def test_the_first_token_may_be_bounded_too() -> None:
    assert Objective(first_token_seconds=0.1).is_met(tally_of([0.2], first_seconds=0.05))
    assert not Objective(first_token_seconds=0.1).is_met(tally_of([0.2], first_seconds=0.15))
    assert not Objective(first_token_seconds=0.1).is_met(tally_of([0.2]))


def test_an_empty_tally_meets_no_objective() -> None:
    assert not Objective().is_met(tally_of([]))


def test_the_text_form_is_short() -> None:
    assert str(Objective()) == "p99 <= 300 ms, failed 0"


def test_a_first_token_cannot_come_after_the_last() -> None:
    with pytest.raises(ValidationError, match="first_token_seconds: "):
        Objective(latency_seconds=0.1, first_token_seconds=0.2)
