"""`dragoman load` on a real service with fake models: generator processes and real connections."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from loadtest.command import LoadCommand
from loadtest.results import from_json
from tests.support.live import LiveService

# No machine is late by this much; the tests do not measure speed.
NEVER_LATE_SECONDS = 60.0
PATIENT = {"latency_seconds": 60.0}


@pytest.fixture(name="sentences")
def _sentences(tmp_path: Path) -> Path:
    path = tmp_path / "sentences.txt"
    path.write_text("alpha beta.\none two three.\n")
    return path


def make_command(live: LiveService, **options: Any) -> LoadCommand:
    defaults: dict[str, Any] = {
        "grpc_target": live.grpc_target,
        "rest_url": live.http_url,
        "max_lag_seconds": NEVER_LATE_SECONDS,
        "objective": PATIENT,
    }
    return LoadCommand(**(defaults | options))


def load(live: LiveService, sentences: Path, **options: Any) -> LoadCommand:
    defaults = {"sentences": sentences, "rate": 40.0, "warm_up_seconds": 0.1, "duration_seconds": 0.5}
    return make_command(live, **{**defaults, **options})


def document_of(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return document


def test_every_protocol_is_answered_and_streams_have_a_first_token(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    protocols = ("grpc", "grpc-stream", "grpc-many", "rest", "rest-stream")
    load(live, sentences, protocol=protocols, texts_per_request=2).cli_cmd()
    document = document_of(capsys)
    assert [run["name"] for run in document["runs"]] == list(protocols)
    assert document["void"] is False
    for run in document["runs"]:
        assert run["all"]["sent"] == run["all"]["ok"] == run["all"]["good"] > 0
        assert run["all"]["errors"] == {}
        assert run["texts_per_second"] == pytest.approx(2 * run["requests_per_second"])
        first, whole = run["all"]["first_token_seconds"], run["all"]["latency_seconds"]
        assert (first is not None) == run["name"].endswith("stream")
        assert first is None or first["p50"] <= whole["p50"]


def test_invalid_requests_are_counted_and_not_lost(
    live: LiveService, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sentences.txt"
    path.write_text("alpha " * 2000)
    load(live, path, protocol=("grpc", "grpc-many", "rest-stream")).cli_cmd()
    runs = [run["all"] for run in document_of(capsys)["runs"]]
    assert [set(run["errors"]) for run in runs] == [{"INVALID_ARGUMENT"}, {"INVALID_ARGUMENT"}, {"400 invalid"}]
    assert all(sum(run["errors"].values()) == run["sent"] > 0 for run in runs)


SCENARIO = """
sentences: sentences.txt
warm_up_seconds: 0
requests:
  - {name: plain, weight: 4}
  - {name: beam, protocol: rest, options: {beam_size: 2}}
phases:
  - {name: steady, arrivals: constant, rate: 40, duration_seconds: 0.5}
  - {name: again, arrivals: replay, trace: trace.jsonl}
"""


def test_a_scenario_runs_on_several_processes_and_is_reported(
    live: LiveService, sentences: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """20 requests at equal intervals, then 6 recorded ones."""
    (tmp_path / "trace.jsonl").write_text("\n".join(f"{time / 100}" for time in range(6)))
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    assert sentences.exists()
    make_command(live, scenario=tmp_path / "scenario.yaml", processes=2, out=tmp_path / "report").cli_cmd()
    steady, again = document_of(capsys)["runs"]
    assert [steady["all"]["ok"], again["all"]["ok"]] == [20, 6]
    assert sum(kind["ok"] for kind in steady["kinds"].values()) == 20
    document = from_json((tmp_path / "report" / "load.json").read_bytes())
    assert sum(round(point.ok_per_second * 0.5) for point in document.runs[0].points) == 20
    assert document.runs[0].server is not None
    page = (tmp_path / "report" / "load.html").read_text()
    for heading in ("latency over time", "requests over time", "batch occupancy", "phases of the server"):
        assert page.count(heading) == 2
    assert "prefers-color-scheme: dark" in page
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', page), "the page must load nothing"


def test_a_closed_loop_is_labeled(live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(live, sentences, closed_loop=2, duration_seconds=0.3).cli_cmd()
    output = capsys.readouterr().out
    assert "CLOSED LOOP, 2 users" in output
    (run,) = json.loads(output.splitlines()[-1])["runs"]
    assert (run["loop"], run["users"]) == ("closed", 2)
    assert run["all"]["ok"] == run["all"]["sent"] > 2


def test_windows_are_repeated_until_the_last_three_agree(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(live, sentences, arrivals="constant", duration_seconds=0.2, until_stable=True).cli_cmd()
    (run,) = document_of(capsys)["runs"]
    used, tried = run["windows"]
    assert used == 3 <= tried <= 10
    assert run["all"]["ok"] == 24, "of the last three alone"


def test_a_capacity_search_reports_goodput_around_the_capacity(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every rate meets a bound of 60 s."""
    monkeypatch.setattr("loadtest.session.TRIAL_WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr("loadtest.session.MOST_DOUBLINGS", 1)
    monkeypatch.setattr("loadtest.session.CURVE_SHARES", (1.0, 2.0))
    make_command(live, sentences=sentences, rate=40.0, find_capacity=True, trial_seconds=0.1).cli_cmd()
    output = capsys.readouterr().out
    capacity = json.loads(output.splitlines()[-1])["capacity"]
    assert capacity["capacity_per_second"] == 80.0
    assert [point["failed_share"] for point in capacity["curve"]] == [0.0] * 2
    assert "capacity (p99 <= 60000 ms, failed 0): 80.0 requests/s" in output


def test_a_capacity_that_the_generator_limits_is_void(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No generator is punctual to the nanosecond, so every trial is void."""
    monkeypatch.setattr("loadtest.session.TRIAL_WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr("loadtest.session.MOST_HALVINGS", 1)
    command = make_command(
        live, sentences=sentences, rate=40.0, find_capacity=True, trial_seconds=0.1, max_lag_seconds=1e-9
    )
    with pytest.raises(SystemExit):
        command.cli_cmd()
    output = capsys.readouterr().out
    document = json.loads(output.splitlines()[-1])
    assert "VOID: " in output
    assert document["void"] is True
    assert document["capacity"]["capacity_per_second"] is None


def test_requests_canceled_on_purpose_are_counted_apart(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(live, sentences, cancelled_share=1.0, protocol=("grpc-stream",)).cli_cmd()
    output = capsys.readouterr().out
    (run,) = json.loads(output.splitlines()[-1])["runs"]
    assert run["all"]["errors"] == {}
    assert run["all"]["sent"] == run["all"]["ok"] + run["all"]["gone"]
    assert " 0 failed" in output


def test_more_users_than_requests_are_all_busy(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load(live, sentences, closed_loop=9, rate=5.0, duration_seconds=0.5, warm_up_seconds=0.0).cli_cmd()
    (run,) = document_of(capsys)["runs"]
    assert run["all"]["ok"] == run["all"]["sent"] >= 9


def test_a_late_generator_exits_with_status_1_and_marks_the_run_void(
    live: LiveService, sentences: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No generator is punctual to the nanosecond."""
    with pytest.raises(SystemExit) as exit_info:
        load(live, sentences, max_lag_seconds=1e-9).cli_cmd()
    output = capsys.readouterr().out
    assert exit_info.value.code == 1
    assert "VOID: " in output
    assert json.loads(output.splitlines()[-1])["void"] is True


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"sentences": Path("missing.txt")}, r"dragoman load: sentences: missing\.txt"),
        ({"scenario": Path("missing.yaml")}, r"dragoman load: missing\.yaml"),
        ({"scenario": Path("any.yaml"), "rate": 5.0}, r"dragoman load: rate: "),
        ({"arrivals": "replay"}, r"dragoman load: trace: "),
        ({"find_capacity": True, "closed_loop": 2}, r"dragoman load: closed-loop: "),
        ({"find_capacity": True, "scenario": Path("any.yaml")}, r"dragoman load: scenario: "),
        ({"find_capacity": True, "arrivals": "burst"}, r"dragoman load: arrivals: "),
        ({"find_capacity": True, "protocol": ("grpc", "rest")}, r"dragoman load: protocol: "),
        ({"duration_seconds": float("inf")}, r"dragoman load: duration-seconds: Input should be a finite number"),
        ({"arrivals": "burst", "every_seconds": 0.1}, r"dragoman load: .*burst_seconds: "),
    ],
)
def test_conflicting_options_are_rejected_by_name(live: LiveService, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SystemExit, match=problem):
        make_command(live, **options).cli_cmd()
