"""Rounds of load in each of which something goes wrong, and what has to hold all the same.

Every request that was sent has exactly one outcome, unless its client was killed; every outcome is one that this fault
can cause; once it is over, every request is answered again; and nothing is left in the servers' slots and queues.
Called by `loadtest.reliability.chaos_command`; what may happen to several replicas is in
`loadtest.reliability.chaos_load`.
"""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar
from typing import Protocol as Interface

from loadtest.clients import NO_RESULT, OK, TIMED_OUT, Targets
from loadtest.generator import Generators
from loadtest.measurement import Run, measure
from loadtest.plan import draw_plan
from loadtest.scenario import LoadProtocol, PoissonPhase, RequestKind, Scenario
from loadtest.served_process import POLL_SECONDS, ServedProcess
from loadtest.server_metrics import MetricsReader

PHASE = "load"
PROTOCOLS: tuple[LoadProtocol, ...] = ("grpc", "grpc-stream", "grpc-many", "rest", "rest-stream")
FAULT_AT = 1 / 4
STALL_SECONDS = 1.0
PROCESSES = 2
# Connections that were lost are there again: the longest pause of a gRPC channel between two tries, and some more.
RECONNECT_SECONDS = 1.5
EMPTY_SECONDS = 10.0
# A round ends so long after its fault as it began before it; a server that takes longer than this has not come back.
LONGEST_SECONDS = 60.0

LATE = frozenset({OK, TIMED_OUT, "DEADLINE_EXCEEDED", "504 deadline_exceeded", "RESOURCE_EXHAUSTED", "429 queue_full"})
LOST_CONNECTION = frozenset(
    {
        "UNAVAILABLE",
        "503 not_ready",
        "ServerDisconnectedError",
        "ClientConnectorError",
        "ClientConnectionResetError",
        "ClientOSError",
        "ClientPayloadError",
        "ConnectionResetError",
        NO_RESULT,
    }
)


class Served(Interface):
    """What is treated badly."""

    @property
    def targets(self) -> Targets:
        """Where clients ask."""

    @property
    def servers(self) -> Sequence[Targets]:
        """Every server behind that."""

    async def wait_ready(self) -> None:
        """Returns once all of it is ready."""

    async def stop(self) -> None:
        """Asks all of it to end, and waits until it has."""


S = TypeVar("S", bound=Served)


async def nothing(*_: object) -> None:
    """What happens where all is well."""


@dataclass(frozen=True, slots=True)
class Fault(Generic[S]):
    """Something that goes wrong.

    Attributes:
        name: in reports.
        happen: does it, and returns when what can be done about it was done.
        outcomes: that requests may have because of it.
        kills_client: whether requests may be lost with their client.
        clients_retry: whether clients over gRPC try again what failed, as the published service config says.
        protocols: that are used meanwhile.
        longest_seconds: that a round with it may last.
        mend: what is done when the round is over, so that the next one finds everything well.
    """

    name: str
    happen: Callable[[S, Generators], Awaitable[None]]
    outcomes: frozenset[str]
    kills_client: bool = False
    clients_retry: bool = False
    protocols: tuple[LoadProtocol, ...] = PROTOCOLS
    longest_seconds: float = LONGEST_SECONDS
    mend: Callable[[S], Awaitable[None]] = nothing


@dataclass(frozen=True, slots=True)
class ChaosRound:
    """What became of a round's requests.

    Attributes:
        fault: what went wrong.
        sent: requests that were sent; if a client was killed, that were to be sent.
        outcomes: how many of them ended, by outcome.
        lost: how many have none; they died with their client.
        over_seconds: when the fault was over, from the start of the round; None: it was not in time.
        asked_afterwards: requests that were sent when all was well again.
        problems: what should not be so.
    """

    fault: str
    sent: int
    outcomes: dict[str, int]
    lost: int
    over_seconds: float | None
    asked_afterwards: int
    problems: list[str] = field(default_factory=list)


async def _stall_server(served: ServedProcess, _generators: Generators) -> None:
    await served.pause(STALL_SECONDS)


async def _kill_server(served: ServedProcess, _generators: Generators) -> None:
    served.kill()
    served.start()
    await served.wait_ready()
    await asyncio.sleep(RECONNECT_SECONDS)


async def _stall_client(_served: ServedProcess, generators: Generators) -> None:
    process_id = generators.process_ids[0]
    os.kill(process_id, signal.SIGSTOP)
    try:
        await asyncio.sleep(STALL_SECONDS)
    finally:
        os.kill(process_id, signal.SIGCONT)


async def _kill_client(_served: ServedProcess, generators: Generators) -> None:
    os.kill(generators.process_ids[0], signal.SIGKILL)


FAULTS: tuple[Fault[ServedProcess], ...] = (
    Fault("nothing", nothing, frozenset({OK})),
    Fault("server stalled", _stall_server, LATE),
    Fault("server killed", _kill_server, LATE | LOST_CONNECTION),
    Fault("client stalled", _stall_client, LATE),
    Fault("client killed", _kill_client, frozenset({OK}), kills_client=True),
)


async def run_round(
    served: S,
    fault: Fault[S],
    kinds: Sequence[RequestKind],
    sentences: Sequence[str],
    *,
    rate: float,
    seconds: float,
    seed: int,
) -> ChaosRound:
    """Runs a round of load with a fault in it.

    Args:
        served: ready.
        fault: what goes wrong.
        kinds: of requests; those of other protocols than the fault's are left out.
        sentences: what is translated.
        rate: requests per second.
        seconds: length of the round, without the time that the fault takes, which happens at its first quarter.
        seed: of all drawing.

    Raises:
        ServedProcessError: if a server does not come back.
    """
    # What a killed client would have sent is only known of a plan that is carried out to its end.
    planned_seconds = seconds if fault.kills_client else fault.longest_seconds
    phase = PoissonPhase(name=PHASE, arrivals="poisson", rate=rate, duration_seconds=planned_seconds)
    requests = tuple(kind for kind in kinds if kind.protocol in fault.protocols)
    plan = draw_plan(Scenario(warm_up_seconds=0, requests=requests, phases=(phase,)), sentences, seed)
    targets = replace(served.targets, retries=fault.clients_retry)
    over_seconds: float | None = None
    async with AsyncExitStack() as stack:
        metrics = [await stack.enter_async_context(MetricsReader.open(server)) for server in served.servers]
        generators = await stack.enter_async_context(Generators.run(PROCESSES, targets, fault.protocols))

        async def disturb(run: Run) -> None:
            nonlocal over_seconds
            await asyncio.sleep(seconds * FAULT_AT - run.now_seconds)
            await fault.happen(served, generators)
            over_seconds = run.now_seconds
            if not fault.kills_client:
                await asyncio.sleep(seconds * (1 - FAULT_AT))
                generators.halt()

        run = await measure(generators, plan, metrics[0], disturb=disturb, may_be_lost=fault.kills_client)
        await fault.mend(served)
        empty = all([await _becomes_empty(each) for each in metrics])
    return _judge(run, fault, over_seconds, empty=empty)


def _judge(run: Run, fault: Fault[Any], over_seconds: float | None, *, empty: bool) -> ChaosRound:
    record = run.record
    tally = record.tally(record.slices_of(PHASE))
    outcomes, sent = tally.outcomes, len(record.plan.requests) if fault.kills_client else tally.sent
    lost = sent - outcomes.total()
    problems = [
        f"{count} x {outcome}: not to be expected"
        for outcome, count in outcomes.items()
        if outcome not in fault.outcomes
    ]
    if lost and not fault.kills_client:
        problems.append(f"{lost} requests without an outcome")
    if fault.kills_client and not lost:
        problems.append("no request was lost with its client, which was to be killed")
    afterwards: Counter[str] = Counter()
    if over_seconds is None:
        problems.append("it was not over before the round")
    else:
        calm = [n for n, each in enumerate(record.plan.slices) if each.begin_seconds >= over_seconds]
        afterwards = record.tally(calm).outcomes
        failed = afterwards.total() - afterwards[OK]
        if not afterwards.total():
            problems.append("no request was sent afterwards: make rounds longer")
        if failed:
            problems.append(f"{failed} requests failed when it was over")
    if not empty:
        problems.append("slots or queue of a server are not empty")
    return ChaosRound(fault.name, sent, dict(outcomes), lost, over_seconds, afterwards.total(), problems)


async def _becomes_empty(metrics: MetricsReader) -> bool:
    """Tells whether nothing is left in a server, given a moment to notice who has gone."""
    for _ in range(round(EMPTY_SECONDS / POLL_SECONDS)):
        state = await metrics.read()
        if state is not None and state.rows == state.waiting == 0:
            return True
        await asyncio.sleep(POLL_SECONDS)
    return False
