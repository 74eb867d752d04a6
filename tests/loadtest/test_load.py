"""`dragoman load` on a real service with fake models: generator processes and real connections."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.loadtest.command import LoadCommand
from dragoman.loadtest.generator import GeneratorLostError
from dragoman.loadtest.protocols import PROTOCOLS
from dragoman.loadtest.results import DOCUMENTS, RunResult
from dragoman.loadtest.scenario import Scenario, read_scenario
from dragoman.loadtest.session import LoadSession
from dragoman.model.errors import UserError
from tests.support.cases import cases
from tests.support.commands import Capture
from tests.support.live import LiveService, run_service
from tests.support.paths import ROOT

CASES = cases(__file__)

STEADY = "{name: steady, arrivals: constant, rate: 40, duration_seconds: 0.5}"
DEFAULTS = {"sentences": "sentences.txt", "warm_up_seconds": "0.1", "phases": f"[{STEADY}]"}
DEFAULTS |= {"max_lag_seconds": "60", "objective": "{latency_seconds: 60}"}
FOREIGN = {"libretranslate", "deepl"}
Load = Callable[..., LoadCommand]
STREAMS = {"grpc-stream", "rest-stream", "generate-stream"}


@pytest.fixture
def load(live: LiveService, tmp_path: Path) -> Load:
    """Makes a command with a scenario: by default 20 requests at equal intervals, from a generator never late."""
    where: dict[str, Any] = {"grpc_target": live.grpc_target, "rest_url": live.http_url}
    (tmp_path / "sentences.txt").write_text("alpha beta.\none two three.\n")

    def make(scenario: str = "", **options: Any) -> LoadCommand:
        lines = [f"{name}: {value}" for name, value in DEFAULTS.items() if f"{name}:" not in scenario]
        (tmp_path / "scenario.yaml").write_text("\n".join([*lines, scenario]))
        return LoadCommand(scenario=str(tmp_path / "scenario.yaml"), **where, **options)

    return make


def document_of(capsys: Capture) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return document


def test_every_protocol_is_answered_and_streams_have_a_first_token(load: Load, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "sentences.txt").write_text("alpha beta.")  # the fake model can score it
    languages: dict[str, Any] = {"source_language": "en", "target_language": "de"}
    runs = []
    for names, model in ((set(PROTOCOLS) - FOREIGN, "fake"), (FOREIGN, "")):
        load(protocol=tuple(names), duration_seconds=0.25, model=model, **languages).cli_cmd()
        document = document_of(capsys)
        assert document["void"] is False
        runs += document["runs"]
    assert {run["name"] for run in runs} == set(PROTOCOLS)
    for run in runs:
        assert run["all"]["errors"] == {}
        assert run["all"]["sent"] == run["all"]["ok"] == run["all"]["good"] == 10
        first, whole = run["all"]["first_token_seconds"], run["all"]["latency_seconds"]
        assert (first is not None) == (run["name"] in STREAMS)
        assert first is None or first["p50"] <= whole["p50"]


@pytest.fixture(scope="module")
def aligning() -> Iterator[LiveService]:
    bundle = ROOT / "bundles" / "multi30k"
    sizes: dict[str, Any] = {"slots": 8, "engines": 1, "queue_limit": 5000}
    with run_service(bundle, [], alignments=True, **sizes) as service:
        yield service


@pytest.mark.parametrize("name", ["lists", "markup", "placeholders", "libretranslate", "deepl"])
def test_texts_of_every_shape_are_answered(
    aligning: LiveService, name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.loadtest.command.read_scenario", lambda path: never_void(read_scenario(path)))
    where: dict[str, Any] = {"grpc_target": aligning.grpc_target, "rest_url": aligning.http_url}
    languages: dict[str, Any] = {"source_language": "auto" if name == "lists" else "en", "target_language": "de"}
    LoadCommand(scenario=name, duration_seconds=1.0, **where, **languages).cli_cmd()
    (run,) = document_of(capsys)["runs"]
    assert {kind: found["errors"] for kind, found in run["kinds"].items() if found["errors"]} == {}
    assert run["all"]["ok"] == run["all"]["sent"] > 0


def never_void(scenario: Scenario) -> Scenario:
    return scenario.model_copy(update={"max_lag_seconds": 60.0, "warm_up_seconds": 0.0})


def test_invalid_requests_are_counted_and_not_lost(load: Load, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "sentences.txt").write_text("alpha " * 2000)
    load(protocol=("grpc", "grpc-many", "rest-stream")).cli_cmd()
    runs = [run["all"] for run in document_of(capsys)["runs"]]
    assert [run["errors"] for run in runs] == [{"INVALID_ARGUMENT": 20}, {"INVALID_ARGUMENT": 20}, {"400 invalid": 20}]


MIXED_KINDS = """
requests:
  - {name: plain, weight: 4, texts: {2: 1}}
  - {name: beam, protocol: rest, options: {beam_size: 2}, texts: {2: 1}}
"""
MIXED = f"""
warm_up_seconds: 0
{MIXED_KINDS}
phases:
  - {STEADY}
  - {{name: again, arrivals: replay, trace: trace.jsonl}}
"""


def test_a_scenario_runs_on_several_processes_and_is_reported(load: Load, tmp_path: Path, capsys: Capture) -> None:
    """20 requests at equal intervals, then 6 recorded ones."""
    (tmp_path / "trace.jsonl").write_text("\n".join(f"{time / 100}" for time in range(6)))
    load(MIXED, processes=2, out=tmp_path / "report").cli_cmd()
    steady, again = document_of(capsys)["runs"]
    assert [steady["all"]["ok"], again["all"]["ok"]] == [20, 6]
    assert sum(kind["ok"] for kind in steady["kinds"].values()) == 20
    assert steady["texts_per_second"] == pytest.approx(2 * steady["requests_per_second"])
    document = DOCUMENTS.validate_json((tmp_path / "report" / "load.json").read_bytes())
    assert sum(round(point.ok_per_second * 0.5) for point in document.runs[0].points) == 20
    assert document.runs[0].server is not None
    assert "steady: beam" in (tmp_path / "report" / "load.html").read_text()


@pytest.mark.parametrize(("users", "rate"), [(2, 40.0), (9, 5.0)], ids=["few users", "more users than requests"])
def test_all_users_of_a_closed_loop_are_busy_and_labeled(load: Load, capsys: Capture, users: int, rate: float) -> None:
    load("warm_up_seconds: 0", closed_loop=users, rate=rate).cli_cmd()
    output = capsys.readouterr().out
    assert "CLOSED LOOP" in output
    (run,) = json.loads(output.splitlines()[-1])["runs"]
    assert run["users"] == users
    assert run["all"]["ok"] == run["all"]["sent"] >= users


def test_a_search_reports_goodput_around_capacity(load: Load, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every rate meets a bound of 60 s."""
    monkeypatch.setattr("dragoman.loadtest.session.TRIAL_WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr("dragoman.loadtest.session.HIGHEST", 2.0)
    monkeypatch.setattr("dragoman.loadtest.session.CURVE_SHARES", (1.0, 2.0))
    load("trial_seconds: 0.1", find_capacity=True).cli_cmd()
    output = capsys.readouterr().out
    capacity = json.loads(output.splitlines()[-1])["capacity"]
    assert (capacity["capacity_per_second"], capacity["bound_seconds"]) == (80.0, 60.0)
    assert [point["all"]["errors"] for point in capacity["curve"]] == [{}] * 2
    assert "80.0 requests/s" in output


def test_a_capacity_of_a_late_generator_is_void(load: Load, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """No generator is punctual to the nanosecond, so every trial is void."""
    monkeypatch.setattr("dragoman.loadtest.session.TRIAL_WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr("dragoman.loadtest.session.LOWEST", 0.5)
    with pytest.raises(SystemExit):
        load("trial_seconds: 0.1\nmax_lag_seconds: 1e-9", find_capacity=True).cli_cmd()
    document = document_of(capsys)
    assert document["void"] is True
    assert document["capacity"]["capacity_per_second"] is None


def test_requests_canceled_on_purpose_are_counted_apart(load: Load, capsys: Capture) -> None:
    load("requests: [{protocol: grpc-stream, cancelled_share: 1}]").cli_cmd()
    (run,) = document_of(capsys)["runs"]
    assert run["all"]["errors"] == {}
    assert run["all"]["sent"] == run["all"]["ok"] + run["all"]["gone"]


def test_a_late_generator_exits_with_status_1_and_marks_the_run_void(load: Load, capsys: Capture) -> None:
    """No generator is punctual to the nanosecond."""
    with pytest.raises(SystemExit) as exit_info:
        load("max_lag_seconds: 1e-9").cli_cmd()
    output = capsys.readouterr().out
    assert exit_info.value.code == 1
    assert "VOID: " in output
    assert json.loads(output.splitlines()[-1])["void"] is True


def test_options_replace_the_fields_of_the_scenario() -> None:
    options: dict[str, Any] = {"rate": 7.0, "duration_seconds": 5.0, "target_language": "de"}
    command = LoadCommand(scenario="interfaces", sentences=Path("lines.txt"), latency_seconds=0.1, **options)
    scenario = command.described_scenario()
    (phase,) = scenario.phases
    assert scenario.sentences == Path("lines.txt")
    assert {"rate": 7.0, "duration_seconds": 5.0}.items() <= dict(phase).items()
    assert {kind.target_language for kind in scenario.requests} == {"de"}
    assert scenario.objective.latency_seconds == 0.1


def test_the_report_has_the_scenario_of_the_options_not_that_of_one_protocol(load: Load, capsys: Capture) -> None:
    load(MIXED_KINDS, protocol=("rest-stream", "grpc")).cli_cmd()
    document = document_of(capsys)
    assert [run["name"] for run in document["runs"]] == ["rest-stream", "grpc"]
    assert [kind["protocol"] for kind in document["scenario"]["requests"]] == ["grpc", "rest"]
    assert [phase["name"] for phase in document["scenario"]["phases"]] == ["steady"]


def test_a_lost_generator_keeps_earlier_runs(load: Load, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    measure = LoadSession.run

    async def run(session: LoadSession, title: str, **how: bool) -> list[RunResult]:
        if title == "grpc":
            raise GeneratorLostError("a generator was lost")
        return await measure(session, title, **how)

    monkeypatch.setattr(LoadSession, "run", run)
    with pytest.raises(GeneratorLostError, match="a generator was lost"):
        load(protocol=("rest", "grpc")).cli_cmd()
    heading, *_ = capsys.readouterr().out.splitlines()
    assert "rest" in heading
    assert "grpc" not in heading


@pytest.mark.parametrize(("options", "problem"), CASES["options that cannot be used are rejected by name"])
def test_options_that_cannot_be_used_are_rejected_by_name(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        LoadCommand(**options).cli_cmd()
