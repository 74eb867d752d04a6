"""R24, R36, R37: three replicas under load, behind nginx or balanced by clients, are restarted, killed, and hang."""

import asyncio
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.clients import OK
from loadtest.generator import Generators
from loadtest.reliability.chaos import PROTOCOLS, ChaosRound, Fault, run_round
from loadtest.reliability.chaos_load import (
    LONGEST_SECONDS,
    VICTIM,
    CapacitySearch,
    ServerSlots,
    found_load,
    replica_faults,
    restart,
)
from loadtest.reliability.replicas import Replicas, balanced_by_clients, behind_nginx, find_nginx, start_replicas, until
from loadtest.scenario import Objective, RequestKind
from loadtest.served_process import ServedProcess
from serve.server_process import is_ready
from tests.support import served_fakes
from tests.support.paths import ROOT
from tests.support.promises import Measured

DEPLOYED = ROOT / "deploy" / "nginx"
RATE = 40.0
ROUND_SECONDS = 2.0
# Several times what nginx needs to notice a leaving replica.
LAME_DUCK_SECONDS = 1.5
WATCH_SECONDS = 0.2
STEP_TIMEOUT_SECONDS = 2.0
# Long enough for a busy machine, and for the requests that a stalled replica holds.
TIMEOUT_SECONDS = 20.0
SHORT_TIMEOUT_SECONDS = 3.0
TIMED = "timing-sensitive: run with --thorough on a quiet machine"

NGINX = pytest.param(
    "nginx",
    marks=pytest.mark.skipif(find_nginx() is None or shutil.which("curl") is None, reason="needs nginx and curl"),
)


@pytest.fixture(scope="module")
def each(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServedProcess, ...]]:
    def command(ports: tuple[int, int]) -> list[str]:
        settings = {"lame_duck_seconds": LAME_DUCK_SECONDS, "step_timeout_seconds": STEP_TIMEOUT_SECONDS}
        return served_fakes.command(bundle_path, ports, **settings)

    with start_replicas(command, tmp_path_factory.mktemp("replicas")) as each:
        asyncio.run(balanced_by_clients(each).wait_ready())
        yield each


@pytest.fixture(scope="module", params=[NGINX, "clients"])
def replicas(
    each: tuple[ServedProcess, ...], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Replicas]:
    """The same replicas, behind nginx or balanced by clients."""
    if request.param == "clients":
        yield balanced_by_clients(each)
        return
    with behind_nginx(each, tmp_path_factory.mktemp("front"), DEPLOYED, WATCH_SECONDS) as replicas:
        yield replicas


def run(replicas: Replicas, fault: Fault[Replicas], timeout_seconds: float = TIMEOUT_SECONDS) -> ChaosRound:
    kinds = [RequestKind(name=each, protocol=each, timeout_seconds=timeout_seconds) for each in PROTOCOLS]
    sentences = ["alpha beta.", "one two three."]
    return asyncio.run(run_round(replicas, fault, kinds, sentences, rate=RATE, seconds=ROUND_SECONDS, seed=1))


def fault(replicas: Replicas, name: str) -> Fault[Replicas]:
    return next(each for each in replica_faults(replicas.protocols) if each.name == name)


@pytest.mark.promise("R24")
@pytest.mark.parametrize("replicas", [NGINX], indirect=True)
def test_behind_nginx_rolling_restarts_lose_no_request(
    replicas: Replicas, measured: Measured, *, thorough: bool
) -> None:
    """The clients do not retry. By default one replica is restarted; with --thorough all are, ten times."""
    victims = [*range(len(replicas.each))] * 10 if thorough else [VICTIM]

    async def restart_each(served: Replicas, _: Generators) -> None:
        for number in victims:
            await restart(served, number)

    restarted = fault(replicas, "all replicas restarted in turn")
    found = run(
        replicas, replace(restarted, happen=restart_each, longest_seconds=max(LONGEST_SECONDS, 30 * len(victims)))
    )
    failed = found.sent - found.outcomes.get(OK, 0)
    measured(
        "R24",
        f"behind nginx, over REST and gRPC: {len(replicas.each)} replicas, {len(victims)} restarts: "
        f"of {found.sent} requests {failed} failed",
    )
    assert found.problems == []
    assert failed == 0


@pytest.mark.promise("R36")
def test_a_killed_replica_loses_no_request(
    replicas: Replicas, measured: Measured, request: pytest.FixtureRequest, *, thorough: bool
) -> None:
    """REST clients rely on retries of nginx; gRPC clients retry themselves."""
    times = 10 if thorough else 1
    rounds = [run(replicas, fault(replicas, "a replica killed and started again")) for _ in range(times)]
    sent = sum(found.sent for found in rounds)
    failed = sent - sum(found.outcomes.get(OK, 0) for found in rounds)
    where = request.node.callspec.params["replicas"]
    measured("R36", f"balanced by {where}: a replica killed {times} times: of {sent} requests {failed} failed")
    assert [found.problems for found in rounds] == [[]] * times
    assert failed == 0


def test_replicas_are_loaded_at_a_share_of_their_joint_capacity(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every tried rate meets a bound of 30 s, so the search ends after one doubling."""
    monkeypatch.setattr("loadtest.session.TRIAL_WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr("loadtest.session.MOST_DOUBLINGS", 1)
    kinds = [RequestKind(name=each, protocol=each, timeout_seconds=TIMEOUT_SECONDS) for each in replicas.protocols]
    search = CapacitySearch(0.5, Objective(latency_seconds=30.0), trial_seconds=0.3)
    load = asyncio.run(found_load(replicas, search, kinds, ["alpha beta."], first_rate=RATE, seed=1))
    assert load.rate == RATE
    assert load.capacity is not None
    assert load.capacity.capacity_per_second == 2 * RATE
    assert load.servers == [ServerSlots(2, 16)] * 3


async def _hang(replicas: Replicas, _generators: Generators) -> None:
    """Makes the model of a replica hang, and waits until its watchdog and the load balancer notice."""
    replicas.each[VICTIM].send(signal.SIGUSR1)

    async def not_ready() -> bool:
        return not await asyncio.to_thread(is_ready, replicas.each[VICTIM].ports[0])

    await until(not_ready, "a server whose model hangs says that it is ready")


@pytest.mark.promise("R37")
def test_a_replica_whose_model_hangs_delays_only_its_own_requests(
    replicas: Replicas, measured: Measured, request: pytest.FixtureRequest, *, thorough: bool
) -> None:
    if not thorough:
        pytest.skip(TIMED)
    stood_still = fault(replicas, "a replica stands still")
    found = run(replicas, replace(stood_still, name="a model hangs", happen=_hang), SHORT_TIMEOUT_SECONDS)
    late = found.sent - found.outcomes[OK]
    where = request.node.callspec.params["replicas"]
    measured("R37", f"balanced by {where}, a model hangs: {found.sent} requests, {late} too late or refused")
    assert found.problems == []
    assert 0 < late < found.sent / 2


@pytest.mark.promise("R37")
@pytest.mark.parametrize("replicas", [NGINX], indirect=True)
def test_nginx_excludes_a_stalled_replica(replicas: Replicas, measured: Measured, *, thorough: bool) -> None:
    if not thorough:
        pytest.skip(TIMED)
    found = run(replicas, fault(replicas, "a replica stands still"), SHORT_TIMEOUT_SECONDS)
    late = found.sent - found.outcomes[OK]
    measured("R37", f"balanced by nginx, a replica stands still: {found.sent} requests, {late} too late")
    assert found.problems == []
    assert late < found.sent / 2
