"""The load and the replica faults of `dragoman load chaos`.

The load is a given rate, or a share of the measured capacity of the servers.
"""

import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console

from loadtest.clients import OK, Targets, open_session
from loadtest.generator import Generators
from loadtest.reliability.chaos import LATE, PHASE, PROCESSES, Fault, Served, nothing
from loadtest.reliability.replicas import Replicas
from loadtest.results import CapacityResult
from loadtest.scenario import LoadProtocol, Objective, PoissonPhase, RequestKind, Scenario, ScenarioError
from loadtest.server_metrics import MetricsReader
from loadtest.session import LiveView, LoadSession, SessionOptions
from loadtest.tables import format_capacity

LONGEST_SECONDS = 180.0
# Unary calls only: neither nginx nor gRPC retries a stream that has begun.
WHOLE: tuple[LoadProtocol, ...] = ("grpc", "rest")
VICTIM = 1


async def restart_all(replicas: Replicas, _generators: Generators) -> None:
    """Restarts the replicas one by one; each must receive requests again before the next."""
    for number in range(len(replicas.each)):
        await restart(replicas, number)


async def restart(replicas: Replicas, number: int) -> None:
    """Restarts a replica and waits until it receives requests again."""
    served = replicas.each[number]
    await served.stop()
    served.start()
    await served.wait_ready()
    await replicas.wait_used(number)


async def replace(replicas: Replicas) -> None:
    """Kills and restarts the victim, as a process supervisor does with a process that is not live."""
    victim = replicas.each[VICTIM]
    victim.kill()
    victim.start()
    await victim.wait_ready()


async def kill_and_start(replicas: Replicas, _generators: Generators) -> None:
    """Kills and restarts a replica, and waits until it receives requests again."""
    await replace(replicas)
    await replicas.wait_used(VICTIM)


async def stand_still(replicas: Replicas, _generators: Generators) -> None:
    """Stalls a replica for the rest of the round, and waits until the load balancer excludes it."""
    replicas.each[VICTIM].send(signal.SIGSTOP)
    await replicas.left_out(VICTIM)


def replica_faults(protocols: tuple[LoadProtocol, ...]) -> tuple[Fault[Replicas], ...]:
    """Returns the faults of replicas that are reached over the given protocols."""
    whole = tuple(protocol for protocol in protocols if protocol in WHOLE)
    return (
        Fault("nothing", nothing, frozenset({OK}), protocols=protocols),
        Fault(
            "all replicas restarted in turn",
            restart_all,
            frozenset({OK}),
            protocols=protocols,
            longest_seconds=LONGEST_SECONDS,
        ),
        Fault(
            "a replica killed and started again",
            kill_and_start,
            frozenset({OK}),
            clients_retry=True,
            protocols=whole,
            longest_seconds=LONGEST_SECONDS,
        ),
        Fault(
            "a replica stands still",
            stand_still,
            LATE,
            clients_retry=True,
            protocols=whole,
            longest_seconds=LONGEST_SECONDS,
            mend=replace,
        ),
    )


TOLERANCE = 0.1
_MODELS_PATH = "/v1/models"


@dataclass(frozen=True, slots=True)
class ServerSlots:
    """Number of engines and slots of a server, over all of its models."""

    engines: int
    slots: int

    @classmethod
    async def ask(cls, server: Targets) -> Self:
        """Reads the limits of the server's models."""
        async with open_session(server.rest, server.security) as session, session.get(_MODELS_PATH) as response:
            models = (await response.json())["models"]
        limits = [each["limits"] for each in models]
        return cls(sum(each["slots"] // each["engine_slots"] for each in limits), sum(each["slots"] for each in limits))


@dataclass(frozen=True, slots=True)
class ChaosLoad:
    """The load that all rounds share. If the rate is a share of the capacity, it holds the capacity search."""

    rate: float
    capacity: CapacityResult | None
    servers: list[ServerSlots]
    cpus: int


@dataclass(frozen=True, slots=True)
class CapacitySearch:
    """The share of the capacity at which the rounds run, the objective, and the measured length of a trial."""

    share: float
    objective: Objective
    trial_seconds: float


async def given_load(served: Served, rate: float) -> ChaosLoad:
    """Returns the load at a given rate."""
    return await _load(served, rate, None)


async def found_load(
    served: Served,
    search: CapacitySearch,
    kinds: Sequence[RequestKind],
    sentences: Sequence[str],
    *,
    first_rate: float,
    seed: int,
) -> ChaosLoad:
    """Searches the capacity and returns the load at a share of it. All kinds must reach all servers.

    Raises:
        GeneratorLostError: if a generator dies.
        ScenarioError: if no rate meets the objective.
    """
    objective = search.objective
    # Latency starts at the intended send time and so includes the lag: a bound on the lag alone is not needed.
    options = SessionOptions(served.targets, PROCESSES, ())
    phase = PoissonPhase(name=PHASE, arrivals="poisson", rate=first_rate, duration_seconds=search.trial_seconds)
    scenario = Scenario(
        requests=tuple(kinds),
        phases=(phase,),
        objective=objective,
        max_lag_seconds=objective.latency_seconds,
        seed=seed,
    )
    protocols = {kind.protocol for kind in kinds}
    with LiveView.open(Console(stderr=True)) as view:
        async with (
            MetricsReader.open(served.servers[0]) as metrics,
            Generators.run(PROCESSES, served.targets, protocols) as generators,
        ):
            session = LoadSession(options, scenario, sentences, generators=generators, metrics=metrics, view=view)
            capacity = await session.find_capacity("capacity", first_rate, search.trial_seconds, TOLERANCE, curve=False)
    if capacity.capacity_per_second is None:
        raise ScenarioError(
            f"objective: {objective}: expected an objective that some rate meets:\n{format_capacity(capacity)}"
        )
    return await _load(served, search.share * capacity.capacity_per_second, capacity)


async def _load(served: Served, rate: float, capacity: CapacityResult | None) -> ChaosLoad:
    servers = [await ServerSlots.ask(server) for server in served.servers]
    return ChaosLoad(rate, capacity, servers, len(os.sched_getaffinity(0)))


def format_load(load: ChaosLoad) -> str:
    """Formats the servers and the load."""
    lines = [f"servers: {len(load.servers)}, CPUs shared with the generator: {load.cpus}"]
    for number, server in enumerate(load.servers):
        lines.append(f"  {number}: engines {server.engines}, slots of all {server.slots}")
    share = ""
    if load.capacity is not None and load.capacity.capacity_per_second is not None:
        lines.append(format_capacity(load.capacity))
        share = f", {load.rate / load.capacity.capacity_per_second:.0%} of the capacity"
    return "\n".join([*lines, f"load: {load.rate:.1f} requests/s{share}"])
