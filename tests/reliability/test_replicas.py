"""R24, R36, R37: three replicas under load, behind nginx or balanced by clients, are restarted, killed, and hang."""

import asyncio
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman.loadtest.clients import OK
from dragoman.loadtest.generator import Generators
from dragoman.loadtest.reliability.chaos import REPLICA_FAULTS, Fault, Findings, Load, run_round
from dragoman.loadtest.reliability.replicas import (
    PROTOCOLS,
    Replicas,
    ServedProcess,
    balanced_by_clients,
    behind_nginx,
    find_nginx,
    start_replicas,
)
from dragoman.loadtest.scenario import RequestKind
from dragoman.serve.host.server_process import is_ready
from tests.support import served_fakes
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.paths import ROOT
from tests.support.promises import Measured

pytestmark = pytest.mark.usefixtures("forked_servers")

# Several times what nginx needs to notice a leaving replica.
LAME_DUCK_SECONDS = 1.5
WATCH_SECONDS = 0.2
STEP_TIMEOUT_SECONDS = 2.0
SHORT_TIMEOUT_SECONDS = 3.0
NAMED = {fault.name: fault for fault in REPLICA_FAULTS}

NGINX = pytest.param(
    "nginx",
    marks=pytest.mark.skipif(find_nginx() is None or shutil.which("curl") is None, reason="needs nginx and curl"),
)


@pytest.fixture(scope="module")
def processes(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedProcess, ...]]:
    def command(ports: tuple[int, int]) -> list[str]:
        settings = {"lame_duck_seconds": LAME_DUCK_SECONDS, "step_timeout_seconds": STEP_TIMEOUT_SECONDS}
        return served_fakes.command(bundle_path, ports, **settings)

    with start_replicas(command, tmp_path_factory.mktemp("replicas")) as processes:
        yield processes


@pytest.fixture(scope="module", params=[NGINX, "clients"])
def replicas(
    processes: tuple[ServedProcess, ...], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    """The same replicas, behind nginx or balanced by clients."""
    if request.param == "nginx":
        with behind_nginx(processes, tmp_path_factory.mktemp("run"), ROOT / "deploy/nginx", WATCH_SECONDS) as replicas:
            asyncio.run(replicas.wait_ready())
            eventually(lambda: is_ready(int(replicas.targets.rest.rpartition(":")[2])))
            yield replicas
    else:
        asyncio.run(balanced_by_clients(processes).wait_ready())
        yield balanced_by_clients(processes)


def run(replicas: Replicas, fault: Fault, timeout_seconds: float = WAIT_SECONDS) -> Findings:
    kinds = [
        (RequestKind(name=protocol, protocol=protocol, timeout_seconds=timeout_seconds), frozenset({OK}))
        for protocol in PROTOCOLS
    ]
    load = Load(kinds, ["alpha beta.", "one two three."], rate=20.0, seed=1)
    return asyncio.run(run_round(replicas, fault, load, 2.0))


def front(replicas: Replicas) -> str:
    return "clients" if replicas.targets.balanced else "nginx"


@pytest.mark.parametrize(
    ("item", "name"),
    [
        pytest.param("R24", "all replicas restarted in turn", marks=pytest.mark.promise("R24")),
        pytest.param("R36", "a replica killed and started again", marks=pytest.mark.promise("R36")),
    ],
)
def test_no_request_fails(replicas: Replicas, measured: Measured, *, thorough: bool, item: str, name: str) -> None:
    """Clients retry only after a kill: REST clients through nginx, gRPC clients by the published service config."""
    rounds = [run(replicas, NAMED[name]) for _ in range(10 if thorough else 1)]
    sent, ok = (sum(found.figures[figure] for found in rounds) for figure in ("sent", "ok"))
    measured(item, f"balanced by {front(replicas)}, {name}, {len(rounds)} times: of {sent} requests {sent - ok} failed")
    assert [found.problems for found in rounds] == [[]] * len(rounds)
    assert sent == ok > 0


async def hang(replicas: Replicas, _generators: Generators) -> None:
    """Makes the model of a replica hang, and waits until its watchdog and the load balancer notice."""
    replicas.victim.send(signal.SIGUSR1)
    await asyncio.sleep(2 * STEP_TIMEOUT_SECONDS + WATCH_SECONDS)
    assert not is_ready(replicas.victim.ports[0])


STALLED = NAMED["a replica stalled"]


@pytest.mark.promise("R37")
@pytest.mark.parametrize("fault", [replace(STALLED, name="a model hangs", happen=hang), STALLED], ids=["hang", "stall"])
def test_a_replica_that_hangs_delays_only_its_own_requests(
    replicas: Replicas, measured: Measured, *, thorough: bool, fault: Fault
) -> None:
    if not thorough:
        pytest.skip("timing-sensitive: run with --thorough on a quiet machine")
    if fault is STALLED and replicas.targets.balanced:
        pytest.skip("clients notice a stalled process after 40 s, in which most requests are late")
    found = run(replicas, fault, SHORT_TIMEOUT_SECONDS)
    late = found.figures["sent"] - found.figures["ok"]
    measured("R37", f"balanced by {front(replicas)}, {fault.name}: {found.figures['sent']} requests, {late} too late")
    assert found.problems == []
    assert late < found.figures["sent"] / 2
