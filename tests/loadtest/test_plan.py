"""Plans: every request and its send time."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from loadtest.plan import WARM_UP, Plan, draw_plan
from loadtest.scenario import Scenario

SENTENCES = ("One.", "Two.", "Three.")
STEADY = {"name": "steady", "arrivals": "constant", "rate": 10, "duration_seconds": 5}


def make_plan(*, windows: int = 1, seed: int = 1, **content: Any) -> Plan:
    scenario = Scenario.model_validate({"phases": [STEADY], "warm_up_seconds": 0, **content})
    return draw_plan(scenario, SENTENCES, seed, windows)


def test_phases_follow_the_warm_up_and_each_other() -> None:
    ramp = {"name": "ramp", "arrivals": "ramp", "rate": 50, "last_rate": 50, "duration_seconds": 10}
    plan = make_plan(phases=[STEADY, ramp], warm_up_seconds=3)
    ends = {each.phase: each.end_seconds for each in plan.slices}
    assert ends == {WARM_UP: 3.0, "steady": 8.0, "ramp": 18.0}
    assert np.all(np.diff(plan.arrivals) >= 0)
    steady = (plan.arrivals >= 3.0) & (plan.arrivals < 8.0)
    assert plan.arrivals[steady].tolist() == pytest.approx((3 + np.arange(50) / 10).tolist())


def test_slices_leave_no_gap_and_hold_every_request() -> None:
    plan = make_plan(windows=2, warm_up_seconds=1.5)
    assert [each.begin_seconds for each in plan.slices[1:]] == [each.end_seconds for each in plan.slices[:-1]]
    for number, arrival in zip(plan.slice_numbers(), plan.arrivals.tolist(), strict=True):
        assert plan.slices[number].begin_seconds <= arrival < plan.slices[number].end_seconds


def test_windows_repeat_a_phase_with_other_requests() -> None:
    plan = make_plan(windows=3)
    assert {each.window for each in plan.slices} == {0, 1, 2}
    assert len(plan.requests) == 150
    assert plan.requests[:50] != plan.requests[50:100]


def test_the_same_seed_gives_the_same_plan() -> None:
    first, same, other = (make_plan(seed=seed) for seed in (1, 1, 2))
    assert first.requests == same.requests != other.requests


def test_kinds_are_mixed_by_weight() -> None:
    kinds = [{"name": "often", "weight": 9}, {"name": "rarely", "weight": 1, "protocol": "rest"}]
    phase = {**STEADY, "rate": 1000}
    counts = Counter(request.kind for request in make_plan(phases=[phase], requests=kinds).requests)
    assert counts["rarely"] == pytest.approx(500, abs=6 * 450**0.5)
    assert counts.total() == 5000


def test_numbers_of_texts_are_drawn_by_weight() -> None:
    plan = make_plan(phases=[{**STEADY, "rate": 1000}], requests=[{"texts": {1: 3, 8: 1}}])
    counts = Counter(len(request.texts) for request in plan.requests)
    assert set(counts) == {1, 8}
    assert counts[8] == pytest.approx(1250, abs=6 * 940**0.5)


def test_the_given_share_of_clients_cancels_at_random_times() -> None:
    plan = make_plan(phases=[{**STEADY, "rate": 1000}], requests=[{"cancelled_share": 0.2}])
    times = [each.cancel_after_seconds for each in plan.requests if each.cancel_after_seconds is not None]
    assert len(times) == pytest.approx(1000, abs=6 * 800**0.5)
    assert max(times) <= 0.5
    assert np.mean(times) == pytest.approx(0.25, abs=0.03)


def test_a_kind_may_have_a_fixed_text() -> None:
    assert {request.texts for request in make_plan(requests=[{"text": " "}]).requests} == {(" ",)}


def test_a_replay_sends_the_recorded_requests(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('7\n{"seconds": 9, "text": ["Recorded."], "options": {"beam_size": 2}}\n')
    plan = make_plan(phases=[{"arrivals": "replay", "trace": trace, "speed": 4}], warm_up_seconds=1)
    measured = [number for number, arrival in enumerate(plan.arrivals.tolist()) if arrival >= 1.0]
    assert plan.arrivals[measured].tolist() == [1.0, 1.5]
    assert plan.requests[measured[0]].texts[0] in SENTENCES
    assert plan.requests[measured[1]].texts == ("Recorded.",)
    assert plan.requests[measured[1]].options == {"beam_size": 2}


def test_parts_of_a_plan_make_up_the_whole() -> None:
    plan = make_plan()
    parts = [plan.part(number, 3) for number in range(3)]
    assert sorted(time for part in parts for time in part.arrivals.tolist()) == plan.arrivals.tolist()
    assert sum(len(part.requests) for part in parts) == len(plan.requests)
