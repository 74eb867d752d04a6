"""Runs rounds of load with one fault each, and checks the invariants.

Every request has exactly one outcome, unless its client was killed, and the outcome is one that the fault explains.
After the fault every request is answered. At the end the server's slots and queue are empty.
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
# Time to restore lost connections: the longest gRPC reconnect backoff and a margin.
RECONNECT_SECONDS = 1.5
EMPTY_SECONDS = 10.0
# Longest round. A server that takes longer to recover has failed the round.
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
    """The system under test: one server or several replicas."""

    @property
    def targets(self) -> Targets:
        """Addresses that clients connect to."""

    @property
    def servers(self) -> Sequence[Targets]:
        """Addresses of every server behind `targets`."""

    async def wait_ready(self) -> None:
        """Waits until every server is ready."""

    async def stop(self) -> None:
        """Stops every server and waits until they have exited."""


S = TypeVar("S", bound=Served)


async def nothing(*_: object) -> None:
    """Injects no fault."""


@dataclass(frozen=True, slots=True)
class Fault(Generic[S]):
    """A fault to inject.

    Attributes:
        happen: injects the fault, and returns when the recovery is complete.
        outcomes: outcomes that the fault explains.
        kills_client: whether requests may be lost with their client.
        clients_retry: whether gRPC clients retry by the published service config.
        mend: cleans up after the round.
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
    """The result of a round.

    Attributes:
        sent: requests sent; if a client was killed, requests planned.
        lost: requests without an outcome; they died with their client.
        over_seconds: end of the recovery, from the start of the round; None if it was not in time.
        asked_afterwards: requests that ended, of those intended after the recovery.
        problems: violated invariants.
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
    """Runs a round of load and injects a fault after its first quarter.

    `seconds` does not include the duration of the fault. Kinds of protocols that the fault excludes are left out.

    Raises:
        ServedProcessError: if a server does not recover.
    """
    # The requests of a killed client are only known if the plan is run to its end.
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
        f"{count} x {outcome}: unexpected outcome"
        for outcome, count in outcomes.items()
        if outcome not in fault.outcomes
    ]
    if lost and not fault.kills_client:
        problems.append(f"{lost} requests without an outcome")
    if fault.kills_client and not lost:
        problems.append("no request was lost with the killed client")
    afterwards: Counter[str] = Counter()
    if over_seconds is None:
        problems.append("no recovery before the end of the round")
    else:
        calm = [n for n, each in enumerate(record.plan.slices) if each.begin_seconds >= over_seconds]
        afterwards = record.tally(calm).outcomes
        failed = afterwards.total() - afterwards[OK]
        if not afterwards.total():
            problems.append("no request was sent after the recovery; raise --round-seconds")
        if failed:
            problems.append(f"{failed} requests failed after the recovery")
    if not empty:
        problems.append("the slots or the queue of a server are not empty")
    return ChaosRound(fault.name, sent, dict(outcomes), lost, over_seconds, afterwards.total(), problems)


async def _becomes_empty(metrics: MetricsReader) -> bool:
    """Returns whether the server becomes empty within EMPTY_SECONDS, in which it notices that clients have left."""
    for _ in range(round(EMPTY_SECONDS / POLL_SECONDS)):
        state = await metrics.read()
        if state is not None and state.rows == state.waiting == 0:
            return True
        await asyncio.sleep(POLL_SECONDS)
    return False
