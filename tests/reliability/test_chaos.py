"""A server with fake models is killed, a client is killed, and every request is counted."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from dragoman import command_line
from dragoman.loadtest.clients import OK
from dragoman.loadtest.reliability.chaos import FAULTS, LOST_CONNECTION, Fault, Findings, Load, run_round
from dragoman.loadtest.reliability.replicas import PROTOCOLS, Replicas, alone, start_replicas
from dragoman.loadtest.scenario import RequestKind
from dragoman.model.errors import TERMINATED
from dragoman.serve.host.server_process import ServerProcessError
from tests.support import served_fakes
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from dragoman.loadtest.generator import Generators

pytestmark = pytest.mark.usefixtures("forked_servers")

KINDS = [
    (RequestKind(name=protocol, protocol=protocol, timeout_seconds=WAIT_SECONDS), frozenset({OK}))
    for protocol in PROTOCOLS
]
NAMED = {fault.name: fault for fault in FAULTS}
# A server of the tests starts within the time between two requests.
DOWN_SECONDS = 0.5


@pytest.fixture(scope="module")
def server(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    folder = tmp_path_factory.mktemp("chaos")
    with start_replicas(lambda ports: served_fakes.command(bundle_path, ports), folder, 1) as processes:
        asyncio.run(alone(*processes).wait_ready())
        yield alone(*processes)


def run(server: Replicas, fault: Fault, seconds: float) -> Findings:
    load = Load(KINDS, ["alpha beta.", "one two three."], rate=20.0, seed=1)
    return asyncio.run(run_round(server, fault, load, seconds))


def outcomes(found: Findings) -> set[str]:
    return {outcome for counts in found.outcomes.values() for outcome in counts}


def test_a_killed_client_loses_only_its_own_requests(server: Replicas) -> None:
    found = run(server, NAMED["client killed"], 2.5)
    assert found.problems == []
    assert 0 < found.figures["lost"] < found.figures["sent"]
    assert outcomes(found) == {OK}


def test_clients_reconnect_to_a_killed_server(server: Replicas) -> None:
    """They get errors. After the restart every request is answered."""
    killed = NAMED["server killed"]

    async def happen(replicas: Replicas, generators: "Generators") -> None:
        replicas.victim.kill()
        await asyncio.sleep(DOWN_SECONDS)
        await killed.happen(replicas, generators)

    found = run(server, replace(killed, happen=happen), 2.5)
    assert found.problems == []
    assert found.figures["lost"] == 0
    assert found.figures["ended_afterwards"] > 0
    assert outcomes(found) & LOST_CONNECTION


def test_a_stalled_client_runs_again_if_the_round_is_canceled(server: Replicas) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        client = cast("Generators", SimpleNamespace(process_ids=[process.pid]))

        async def cancel() -> None:
            await asyncio.wait_for(NAMED["client stalled"].happen(server, client), 0.05)

        with pytest.raises(TimeoutError):
            asyncio.run(cancel())
        state = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").split()[2]
        process.kill()
    assert state != "T"


def test_a_failed_start_is_reported_with_the_last_log_line(tmp_path: Path) -> None:
    with (
        start_replicas(lambda ports: served_fakes.command(tmp_path / "nowhere", ports), tmp_path, 1) as processes,
        pytest.raises(ServerProcessError, match="nowhere"),
    ):
        asyncio.run(alone(*processes).wait_ready())


def test_an_outcome_that_the_fault_does_not_explain_exits_with_status_1(
    bundle_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def command(bundle: Path, *ports: int, **_: object) -> list[str]:
        return served_fakes.command(bundle, (ports[0], ports[1]))

    monkeypatch.setattr("dragoman.loadtest.reliability.chaos.server_command", command)
    unexplained = tuple(replace(fault, outcomes=frozenset({OK})) for fault in FAULTS)
    monkeypatch.setattr("dragoman.loadtest.reliability.chaos.FAULTS", unexplained)
    options = ["--only=nothing,server killed", "--rate=20", "--round-seconds=2.5", f"--timeout-seconds={WAIT_SECONDS}"]
    with pytest.raises(SystemExit) as ended:
        command_line.run("load chaos", [str(bundle_path), *options])
    rounds = json.loads(capsys.readouterr().out.splitlines()[-1])["rounds"]
    assert ended.value.code == 1
    assert {found["name"]: bool(found["problems"]) for found in rounds} == {"nothing": False, "server killed": True}
    assert any(outcome in problem for problem in rounds[1]["problems"] for outcome in LOST_CONNECTION)


@pytest.mark.parametrize(("balance", "known"), [([], "server stalled"), (["--balance=clients"], "all replicas")])
def test_a_wrong_name_lists_the_known_ones(balance: list[str], known: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.run("load chaos", ["nowhere", *balance, "--only=nothing,all at once"])
    assert ended.value.code == 2
    assert known in capsys.readouterr().err


def test_a_terminated_command_leaves_no_server_behind(toy_bundle: Path) -> None:
    command = [sys.executable, "-m", "dragoman", "load", "chaos", str(toy_bundle)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=ROOT) as process:
        eventually(lambda: bool(servers_of(process.pid)))
        servers = servers_of(process.pid)
        process.terminate()
        assert process.wait(WAIT_SECONDS) == TERMINATED
    assert [server for server in servers if server.exists()] == []


def servers_of(process_id: int) -> list[Path]:
    """Returns the /proc folders of the server processes that a process has started, once they run threads."""
    started = Path(f"/proc/{process_id}/task/{process_id}/children").read_text(encoding="ascii").split()
    folders = [Path(f"/proc/{child}") for child in started]
    return [folder for folder in folders if runs_server(folder)]


def runs_server(folder: Path) -> bool:
    with suppress(OSError):  # the process has ended
        return b"\0serve\0" in (folder / "cmdline").read_bytes() and len(list((folder / "task").iterdir())) > 1
    return False
