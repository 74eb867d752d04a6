"""Several processes of one service under load: workers are replaced or killed, and models are replaced."""

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.loadtest.clients import OK
from dragoman.loadtest.generator import Generators
from dragoman.loadtest.reliability.chaos import ANSWERED, LOST_CONNECTION, Fault, Load, run_round
from dragoman.loadtest.reliability.replicas import START_SECONDS, Replicas, alone, start_replicas
from dragoman.loadtest.reliability.soak import ADMIN_KEY, replace_model
from dragoman.loadtest.scenario import RequestKind
from dragoman.serve.host.server_process import server_command
from tests.support.live import WAIT_SECONDS, eventually
from tests.support.paths import ROOT
from tests.support.processes import children
from tests.support.promises import Measured

pytestmark = pytest.mark.usefixtures("forked_servers")

WORKERS = 2
# Several times less than a slow machine answers.
RATE = 20.0
SENTENCES = ["A man is walking.", "Two dogs play in the snow near a lake."]
# A killed worker has few requests at a time; the others of its connections go elsewhere.
MAX_LOST = 4


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(ROOT / "bundles" / "multi30k-en-de", tmp_path_factory.mktemp("bundle") / "bundle")


@pytest.fixture(scope="module")
def service(bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """A service of two processes; to its clients it is one server."""

    def command(ports: tuple[int, int]) -> list[str]:
        return [*server_command(bundle, *ports), "--processes", str(WORKERS), "--admin-key", ADMIN_KEY]

    with start_replicas(command, tmp_path_factory.mktemp("service"), count=1) as (served,):
        service = alone(served)
        asyncio.run(service.wait_ready())
        yield service


def workers(service: Replicas) -> set[int]:
    return set(children(service.victim.process_id))


async def wait_replaced(service: Replicas, gone: set[int]) -> None:
    """Waits until no worker is one of those before, and all others serve."""
    await asyncio.to_thread(eventually, lambda: not workers(service) & gone and len(workers(service)) == WORKERS)
    await service.wait_ready()


async def restart_workers(service: Replicas, _: Generators) -> None:
    before = workers(service)
    service.victim.send(signal.SIGUSR2)
    await wait_replaced(service, before)


async def kill_worker(service: Replicas, _: Generators) -> None:
    victim = min(workers(service))
    os.kill(victim, signal.SIGKILL)
    await wait_replaced(service, {victim})


def load() -> Load:
    """Returns requests over both protocols; gRPC clients retry by the published service config."""
    kinds = [RequestKind(name=name, protocol=name, timeout_seconds=WAIT_SECONDS) for name in ("grpc", "rest")]
    return Load([(kind, frozenset({OK})) for kind in kinds], SENTENCES, rate=RATE, seed=1)


@pytest.mark.promise("R24")
@pytest.mark.parametrize("name", ["workers replaced in turn", "models replaced"])
def test_no_request_fails(service: Replicas, bundle: Path, measured: Measured, *, thorough: bool, name: str) -> None:
    times, replaced = 10 if thorough else 1, list[bool]()

    async def happen(service: Replicas, generators: Generators) -> None:
        for _ in range(times):
            if name == "models replaced":
                replaced.append(await replace_model(service.targets.rest, bundle))
            else:
                await restart_workers(service, generators)

    fault = Fault(name, happen, ANSWERED, retried=True, recovery_seconds=2 * START_SECONDS)
    found = asyncio.run(run_round(service, fault, load(), 2.0))
    sent, ok = found.figures["sent"], found.figures["ok"]
    measured("R24", f"{WORKERS} processes, {name} {times} times: of {sent} requests {sent - ok} failed")
    assert found.problems == []
    assert all(replaced)
    assert sent == ok > 0


@pytest.mark.promise("R36")
def test_a_killed_worker_loses_no_more_than_it_had(service: Replicas, measured: Measured, *, thorough: bool) -> None:
    times = 10 if thorough else 1
    fault = Fault("a worker killed", kill_worker, ANSWERED | LOST_CONNECTION, retried=True)
    rounds = [asyncio.run(run_round(service, fault, load(), 2.0)) for _ in range(times)]
    sent, ok = (sum(found.figures[figure] for found in rounds) for figure in ("sent", "ok"))
    measured("R36", f"{WORKERS} processes, a worker killed {times} times: of {sent} requests {sent - ok} failed")
    for found in rounds:
        assert found.problems == []
        assert found.outcomes["grpc"].keys() == {OK}
        assert found.figures["sent"] - found.figures["ok"] <= MAX_LOST
