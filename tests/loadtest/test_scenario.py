"""Scenario files: valid content, and the messages for invalid content."""

from pathlib import Path
from textwrap import dedent

import pytest

from loadtest.scenario import ReplayPhase, ScenarioError, read_scenario
from tests.support.paths import ROOT

WHOLE = """
sentences: test.en
warm_up_seconds: 2
requests:
  - {name: short, weight: 8, protocol: grpc}
  - name: pages
    protocol: rest-stream
    texts: {1: 3, 8: 1}
    options: {beam_size: 4}
    source_language: en
    target_language: de
    timeout_seconds: 2
    cancelled_share: 0.1
phases:
  - {name: steady, arrivals: poisson, rate: 50, duration_seconds: 10}
  - {name: clockwork, arrivals: constant, rate: 50, duration_seconds: 10}
  - {name: bursts, arrivals: burst, rate: 5, peak_rate: 50, every_seconds: 5, burst_seconds: 1}
  - {name: morning, arrivals: ramp, rate: 5, last_rate: 50}
  - {name: yesterday, arrivals: replay, trace: trace.jsonl, speed: 2}
"""


def write(folder: Path, content: str) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(content)
    return path


def test_a_scenario_holds_every_kind_of_phase_and_request_kinds(tmp_path: Path) -> None:
    scenario = read_scenario(write(tmp_path, WHOLE))
    assert [phase.arrivals for phase in scenario.phases] == ["poisson", "constant", "burst", "ramp", "replay"]
    assert scenario.requests[1].options.given() == {"beam_size": 4}
    assert scenario.requests[1].texts == {1: 3.0, 8: 1.0}


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    scenario = read_scenario(write(tmp_path, WHOLE))
    replay = scenario.phases[-1]
    assert isinstance(replay, ReplayPhase)
    assert (scenario.sentences, replay.trace) == (tmp_path / "test.en", tmp_path / "trace.jsonl")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("phases: [{arrivals: poisson}]\ncolor: green", r"color: Extra inputs"),
        ("phases: [{arrivals: poisson, speed: 2}]", r"phases\.0\.poisson\.speed: Extra inputs"),
        ("phases: [{arrivals: poisson}]\nrequests: [{protocl: grpc}]", r"requests\.0\.protocl: Extra inputs"),
        (
            "phases: [{arrivals: poisson}]\nrequests: [{options: {beam: 4}}]",
            r"requests\.0\.options.*beam|unknown field",
        ),
        ("phases: [{arrivals: waves}]", r"phases\.0: .*'poisson', 'constant', 'burst', 'ramp', 'replay'"),
        ("phases: [{arrivals: poisson, rate: 0}]", r"phases\.0\.poisson\.rate: .*greater than 0"),
        ("phases: [{arrivals: burst, every_seconds: 1, burst_seconds: 2}]", r"burst_seconds: "),
        ("phases: []", r"phases: .*at least 1 item"),
        ("phases: [{arrivals: poisson}, {arrivals: ramp}]", r"phases: name: .*'load'"),
        ("warm_up_seconds: 1", r"phases: Field required"),
        ("phases: [", r"expected the node content"),
        ("just text", r"valid dictionary"),
    ],
)
def test_an_invalid_field_is_named(tmp_path: Path, content: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        read_scenario(write(tmp_path, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=r"nowhere\.yaml"):
        read_scenario(tmp_path / "nowhere.yaml")


def test_the_example_of_the_documentation_is_valid(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "loadtest.md").read_text(encoding="utf-8")
    begin = text.index("    sentences: test.en")
    block = text[begin : text.index("\n\n", begin)]
    scenario = read_scenario(write(tmp_path, dedent(block)))
    assert [phase.name for phase in scenario.phases] == ["steady", "bursts", "morning", "yesterday"]
