"""Scenarios as data: files, send times, and the plans that are drawn from them."""

from collections import Counter
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.loadtest import scenario as scenarios
from dragoman.loadtest.command import _READY_MADE
from dragoman.loadtest.plan import WARM_UP, LoadPlan, draw_plan
from dragoman.loadtest.protocols import PROTOCOLS
from dragoman.loadtest.scenario import PoissonPhase, ReplayPhase, Scenario, ScenarioError, read_scenario, read_sentences
from tests.support.cases import cases
from tests.support.paths import ROOT

CASES = cases(__file__)

SENTENCES = ("One.", "Two.", "Three.")
STEADY = {"name": "steady", "arrivals": "constant", "rate": 10, "duration_seconds": 5}
BUSY = {**STEADY, "rate": 1000}


def write(folder: Path, content: str, name: str = "scenario.yaml") -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def make_plan(*, seed: int = 1, **content: Any) -> LoadPlan:
    return draw_plan(Scenario.model_validate({"phases": [STEADY], "warm_up_seconds": 0, **content}), SENTENCES, seed)


def draw(phase: scenarios.TimedPhase, seed: int = 1) -> scenarios.Arrivals:
    return phase.draw(np.random.default_rng(seed))


def test_the_example_of_the_documentation_is_valid_and_its_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "loadtest.md").read_text(encoding="utf-8")
    begin = text.index("    sentences: test.en")
    scenario = read_scenario(write(tmp_path, dedent(text[begin : text.index("\n\n", begin)])))
    assert [phase.arrivals for phase in scenario.phases] == ["poisson", "burst", "ramp", "replay"]
    assert scenario.requests[1].options.given() == {"beam_size": 4}
    replay = scenario.phases[-1]
    assert isinstance(replay, ReplayPhase)
    assert (scenario.sentences, replay.trace) == (tmp_path / "test.en", tmp_path / "requests.jsonl")


@pytest.mark.parametrize("path", _READY_MADE.values(), ids=str)
def test_ready_made_scenarios_are_valid(path: Path) -> None:
    assert draw_plan(read_scenario(path), read_sentences(None), seed=1).requests


@pytest.mark.parametrize(("content", "problem"), CASES["an invalid field is named"])
def test_an_invalid_field_is_named(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        read_scenario(write(tmp_path, content.replace("PHASES ", "phases: [{arrivals: poisson}]\n")))


def test_poisson_gaps_are_exponential_with_the_given_rate() -> None:
    """20,000 arrivals, six standard deviations are 849. An exponential's standard deviation equals its mean."""
    arrivals = draw(PoissonPhase(rate=200.0, duration_seconds=100.0))
    assert abs(len(arrivals) - 20_000) < 849
    gaps = np.diff(arrivals)
    assert (gaps.mean(), gaps.std()) == pytest.approx((1 / 200, 1 / 200), rel=0.05)


@given(rate=st.floats(0.1, 500.0), seconds=st.floats(0.1, 5.0), seed=st.integers(0, 2**32))
def test_arrivals_ascend_within_the_phase_and_are_reproducible(rate: float, seconds: float, seed: int) -> None:
    phase = PoissonPhase(rate=rate, duration_seconds=seconds)
    arrivals = draw(phase, seed)
    assert np.all(np.diff(arrivals) >= 0)
    assert np.all((arrivals >= 0) & (arrivals <= seconds))
    assert np.array_equal(arrivals, draw(phase, seed))


def test_constant_arrivals_are_evenly_spaced_from_zero() -> None:
    assert draw(scenarios.ConstantPhase(rate=4.0, duration_seconds=1.0)).tolist() == [0.0, 0.25, 0.5, 0.75]


def test_bursts_come_at_the_end_of_every_period() -> None:
    """Of 1,000 s, 100 have 50/s and 900 have 5/s: 5,000 and 4,500 arrivals are expected."""
    arrivals = draw(
        scenarios.BurstPhase(rate=5, peak_rate=50, duration_seconds=1000, every_seconds=10, burst_seconds=1)
    )
    in_burst = arrivals % 10.0 >= 9.0
    assert in_burst.sum() == pytest.approx(5000, abs=6 * 5000**0.5)
    assert (~in_burst).sum() == pytest.approx(4500, abs=6 * 4500**0.5)


@pytest.mark.parametrize(("rate", "last_rate", "first", "last"), [(10, 100, 1450, 9550), (100, 10, 9550, 1450)])
def test_a_ramp_has_its_rates_at_its_ends(rate: int, last_rate: int, first: int, last: int) -> None:
    """In the first and the last 100 s of 1,000 s."""
    arrivals = draw(scenarios.RampPhase(rate=rate, last_rate=last_rate, duration_seconds=1000))
    assert (arrivals < 100.0).sum() == pytest.approx(first, abs=6 * first**0.5)
    assert (arrivals >= 900.0).sum() == pytest.approx(last, abs=6 * last**0.5)


def test_phases_follow_the_warm_up_and_each_other() -> None:
    ramp = {"name": "ramp", "arrivals": "ramp", "rate": 50, "last_rate": 50, "duration_seconds": 10}
    plan = make_plan(phases=[STEADY, ramp], warm_up_seconds=3)
    assert {part.phase: part.end_seconds for part in plan.parts} == {WARM_UP: 3.0, "steady": 8.0, "ramp": 18.0}
    assert np.all(np.diff(plan.arrivals) >= 0)
    steady = (plan.arrivals >= 3.0) & (plan.arrivals < 8.0)
    assert plan.arrivals[steady].tolist() == pytest.approx((3 + np.arange(50) / 10).tolist())


def test_parts_leave_no_gap_and_hold_every_request() -> None:
    plan = make_plan(phases=[STEADY, {**STEADY, "name": "more"}], warm_up_seconds=1.5)
    assert [part.begin_seconds for part in plan.parts[1:]] == [part.end_seconds for part in plan.parts[:-1]]
    assert sum(plan.planned(begin, end) for _, begin, end in plan.parts) == len(plan.requests)


def test_the_same_seed_gives_the_same_requests() -> None:
    first, same, other = (make_plan(seed=seed) for seed in (1, 1, 2))
    assert first.requests == same.requests != other.requests


def test_kinds_and_numbers_of_texts_are_drawn_by_weight() -> None:
    kinds = [{"name": "often", "weight": 9, "texts": {1: 3, 8: 1}}, {"name": "rarely", "protocol": "rest"}]
    requests = make_plan(phases=[BUSY], requests=kinds).requests
    counts = Counter(request.kind.name for request in requests)
    assert counts["rarely"] == pytest.approx(500, abs=6 * 450**0.5)
    texts = Counter(len(request.texts) for request in requests if request.kind.name == "often")
    assert texts[8] == pytest.approx(counts["often"] / 4, abs=6 * 850**0.5)


def test_the_given_share_of_clients_cancels_at_random_times() -> None:
    plan = make_plan(phases=[BUSY], requests=[{"cancelled_share": 0.2}])
    times = [request.cancel_after_seconds for request in plan.requests if request.cancel_after_seconds is not None]
    assert len(times) == pytest.approx(1000, abs=6 * 800**0.5)
    assert max(times) <= 0.5
    assert np.mean(times) == pytest.approx(0.25, abs=0.03)


def test_a_kind_may_have_a_fixed_text_and_more_fields_of_the_body() -> None:
    (request, *_) = make_plan(requests=[{"protocol": "rest", "text": " ", "fields": {"markup": "html"}}]).requests
    assert (request.texts, request.body(PROTOCOLS["rest"])["markup"]) == ((" ",), "html")


def test_a_replay_sends_the_recorded_requests_at_their_times(tmp_path: Path) -> None:
    trace = write(tmp_path, '{"seconds": 9, "text": ["Recorded."], "options": {"beam_size": 2}}\n\n7\n', "trace.jsonl")
    plan = make_plan(phases=[{"arrivals": "replay", "trace": trace, "speed": 4}], warm_up_seconds=1)
    measured = [number for number, arrival in enumerate(plan.arrivals.tolist()) if arrival >= 1.0]
    assert plan.arrivals[measured].tolist() == [1.0, 1.5]
    assert plan.requests[measured[0]].texts[0] in SENTENCES
    assert plan.requests[measured[1]].texts == ("Recorded.",)
    assert plan.requests[measured[1]].values["options"] == {"beam_size": 2}


@pytest.mark.parametrize(("content", "problem"), CASES["an invalid line of a trace is named"])
def test_an_invalid_line_of_a_trace_is_named(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=rf"^trace: .*trace\.jsonl: {problem}"):
        _ = ReplayPhase(trace=write(tmp_path, content, "trace.jsonl")).recorded


def test_shares_of_a_plan_make_up_the_whole() -> None:
    plan = make_plan()
    parts = [plan.share(number, 3) for number in range(3)]
    assert sorted(time for part in parts for time in part.arrivals.tolist()) == plan.arrivals.tolist()
    assert sum(len(part.requests) for part in parts) == len(plan.requests)


def test_blank_lines_are_no_sentences(tmp_path: Path) -> None:
    assert read_sentences(write(tmp_path, "One.\n\n  \nZwölf.\n")) == ("One.", "Zwölf.")


@pytest.mark.parametrize("content", [b"\n\n", b"\x1f\x8b"], ids=["blank", "binary"])
def test_a_file_without_sentences_is_rejected(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "sentences.txt").write_bytes(content)
    with pytest.raises(ScenarioError, match=r"^sentences: .*sentences\.txt: "):
        read_sentences(tmp_path / "sentences.txt")
