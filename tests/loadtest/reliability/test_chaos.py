"""A short chaos run: a server with fake models is killed, a client is killed, and every request is counted."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dragoman
from loadtest.clients import OK
from loadtest.reliability.chaos import FAULTS, LOST_CONNECTION, PROTOCOLS, ChaosRound, Fault, run_round
from loadtest.reliability.chaos_command import format_round
from loadtest.scenario import RequestKind
from loadtest.served_process import ServedProcess, ServedProcessError
from serve.server_process import choose_ports
from tests.support import served_fakes
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.paths import ROOT

KINDS = [RequestKind(name=protocol, protocol=protocol, timeout_seconds=5) for protocol in PROTOCOLS]


@pytest.fixture(scope="module", name="served")
def _served(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedProcess]:
    ports = choose_ports(0, 0)
    log = tmp_path_factory.mktemp("chaos") / "server.log"
    with ServedProcess.run(served_fakes.command(bundle_path, ports), ports, log) as served:
        asyncio.run(served.wait_ready())
        yield served


def run(served: ServedProcess, fault: Fault[ServedProcess], seconds: float) -> ChaosRound:
    main = run_round(served, fault, KINDS, ["alpha beta.", "one two three."], rate=40.0, seconds=seconds, seed=1)
    return asyncio.run(main)


def fault(name: str) -> Fault[ServedProcess]:
    return next(each for each in FAULTS if each.name == name)


def test_a_terminated_command_leaves_no_server_behind(toy_bundle: Path) -> None:
    command = [sys.executable, "-m", "dragoman", "load", "chaos", str(toy_bundle)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT) as process:
        eventually(lambda: bool(servers_of(process.pid)))
        servers = servers_of(process.pid)
        process.terminate()
        assert process.wait(WAIT_SECONDS) == dragoman.TERMINATED
    assert [server for server in servers if server.exists()] == []


def servers_of(process_id: int) -> list[Path]:
    """Returns the /proc folders of the server processes that a process has started, once they run threads."""
    started = Path(f"/proc/{process_id}/task/{process_id}/children").read_text(encoding="ascii").split()
    folders = [Path(f"/proc/{child}") for child in started]
    return [
        folder
        for folder in folders
        if b"\0serve\0" in (folder / "cmdline").read_bytes() and len(list((folder / "task").iterdir())) > 1
    ]


def test_a_killed_client_loses_only_its_own_requests(served: ServedProcess) -> None:
    found = run(served, fault("client killed"), 4.0)
    assert found.problems == []
    assert 0 < found.lost < found.sent
    assert found.outcomes == {OK: found.sent - found.lost}


def test_clients_reconnect_to_a_killed_server(served: ServedProcess) -> None:
    """Its clients get errors. After the restart every request is answered."""
    found = run(served, fault("server killed"), 2.5)
    assert found.problems == []
    assert found.lost == 0
    assert sum(found.outcomes.values()) == found.sent
    assert LOST_CONNECTION & set(found.outcomes)
    assert found.asked_afterwards > 0


def test_an_unexpected_outcome_is_reported(served: ServedProcess) -> None:
    """The server is killed in a round without a fault."""

    async def kill(server: ServedProcess, _generators: object) -> None:
        await fault("server killed").happen(server, _generators)  # type: ignore[arg-type]

    found = run(served, Fault("nothing", kill, frozenset({OK})), 1.0)
    assert any(outcome in problem for problem in found.problems for outcome in LOST_CONNECTION)
    assert "WRONG: " in format_round(found)


def test_a_failed_start_reports_the_last_log_line(tmp_path: Path) -> None:
    ports = choose_ports(0, 0)
    command = served_fakes.command(tmp_path / "nowhere", ports)
    with (
        ServedProcess.run(command, ports, tmp_path / "server.log") as served,
        pytest.raises(ServedProcessError, match=r"status 1: .*nowhere"),
    ):
        asyncio.run(served.wait_ready())


@pytest.fixture(name="_fakes")
def _fake_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Serves fake models, and searches a capacity in less than a second."""
    monkeypatch.setattr(
        "loadtest.reliability.chaos_command.server_command",
        lambda bundle, *ports, **_: served_fakes.command(bundle, ports),
    )
    monkeypatch.setattr("loadtest.session.TRIAL_WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr("loadtest.session.MOST_DOUBLINGS", 1)


@pytest.mark.usefixtures("_fakes")
def test_rounds_run_at_a_share_of_the_measured_capacity(bundle_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every tried rate meets a bound of 30 s, so the search ends after one doubling."""
    search = ["--rate=20", "--capacity-share=0.7", "--trial-seconds=0.3", "--objective.latency-seconds=30"]
    patient = ["--timeout-seconds=30", "--round-seconds=1"]
    dragoman.run("load chaos", [str(bundle_path), "--only=nothing", "--repeat=2", *search, *patient])
    output = capsys.readouterr().out
    document = json.loads(output.splitlines()[-1])
    assert document["load"]["capacity"]["capacity_per_second"] == 40.0
    assert document["load"]["rate"] == pytest.approx(28.0)
    assert document["load"]["servers"] == [{"engines": 2, "slots": 16}]
    assert [found["fault"] for found in document["rounds"]] == ["nothing", "nothing"]
    assert "capacity (p99 <= 30000 ms, failed 0): 40.0 requests/s" in output
    assert "load: 28.0 requests/s, 70% of the capacity" in output
    assert "engines 2, slots of all 16" in output


@pytest.mark.usefixtures("_fakes")
def test_an_outcome_that_the_fault_does_not_explain_exits_with_status_1(
    bundle_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unasked = Fault("killed", fault("server killed").happen, frozenset({OK}))
    monkeypatch.setattr("loadtest.reliability.chaos_command.FAULTS", (unasked,))
    with pytest.raises(SystemExit) as ended:
        dragoman.run("load chaos", [str(bundle_path), "--only=killed", "--rate=40", "--round-seconds=1"])
    assert ended.value.code == 1
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (document["load"]["rate"], document["load"]["capacity"]) == (40.0, None)
    assert document["rounds"][0]["problems"] != []


@pytest.mark.usefixtures("_fakes")
def test_an_objective_that_no_rate_meets_is_reported(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.session.MOST_HALVINGS", 0)
    impossible = ["--capacity-share=0.7", "--trial-seconds=0.3", "--objective.latency-seconds=1e-6"]
    with pytest.raises(SystemExit, match=r"^dragoman load chaos: objective: .*p99 <= 0.001 ms"):
        dragoman.run("load chaos", [str(bundle_path), *impossible])


@pytest.mark.parametrize(
    ("balance", "names"),
    [
        ([], "'nothing', 'server stalled', 'server killed', 'client stalled', 'client killed'"),
        (["--balance=clients"], "'nothing', 'all replicas restarted in turn', 'a replica killed and started again'"),
    ],
)
def test_an_unknown_fault_is_rejected_with_the_known_ones(
    balance: list[str], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        dragoman.run("load chaos", ["nowhere", *balance, "--only=nothing,all at once"])
    assert ended.value.code == 2
    assert names in capsys.readouterr().err
