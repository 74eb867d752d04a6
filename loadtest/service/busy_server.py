"""A watched server that many clients keep busy: each waits for its answer and asks again at once (a closed loop).

The clients are those of `dragoman load`, in processes of their own. What the server did and spent is what it says
itself at both ends of the measured time, in which the clients do not stop. Called by
`loadtest.service.service_benchmark`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from export.manifest import BundleDirection
from loadtest.comparison.rounds import in_turn
from loadtest.load.client import OK
from loadtest.load.clients import Targets
from loadtest.load.generators import Generators
from loadtest.load.plan import Plan, draw_plan
from loadtest.load.record import Record
from loadtest.load.request import Protocol
from loadtest.load.scenario import ConstantPhase, RequestKind, Scenario
from loadtest.load.server_metrics import MetricsReader, ServerState, rows_per_step
from loadtest.load.tally import Bound
from loadtest.service.cpu_times import CpuTimes, read_cpu_times
from loadtest.service.service_options import ServiceOptions
from loadtest.service.service_results import INTERFACES, BusyResult, BusyTurn, Interface

SEED = 1
# The clients go on until they are stopped, but not for ever.
LONGEST_SECONDS = 600.0
# Sentences that each client draws; it begins again with the first when it has asked for all.
SENTENCES_OF_A_CLIENT = 20
_PROTOCOLS: dict[Interface, Protocol] = {"gRPC": "grpc", "REST": "rest", "TranslateMany": "grpc-many"}
# As the server counts them.
_REQUESTS: dict[Interface, str] = {
    "gRPC": "grpc translate ok",
    "REST": "rest translate ok",
    "TranslateMany": "grpc translate_many ok",
}


class BusyServerError(Exception):
    """The server does not tell what it does, or does nothing."""


@dataclass(frozen=True, slots=True)
class BusyAddress:
    """Where a watched server is.

    Attributes:
        targets: its interfaces.
        watch_url: where it shows CPU times.
    """

    targets: Targets
    watch_url: str


@dataclass(frozen=True, slots=True)
class _Reading:
    """What the server says at a moment of the machine's monotonic clock."""

    seconds: float
    state: ServerState
    cpu: CpuTimes


class BusyServer:
    """A server with its clients."""

    def __init__(
        self,
        options: ServiceOptions,
        plans: dict[Interface, Plan],
        generators: Generators,
        metrics: MetricsReader,
        watch_url: str,
    ) -> None:
        self._options = options
        self._plans = plans
        self._generators = generators
        self._metrics = metrics
        self._watch_url = watch_url

    @classmethod
    @asynccontextmanager
    async def open(
        cls, options: ServiceOptions, address: BusyAddress, texts: Sequence[str], direction: BundleDirection
    ) -> AsyncIterator[Self]:
        """Starts the clients, and stops them when the block ends.

        Args:
            options: of the benchmark.
            address: of the server.
            texts: that are asked for, one in each request.
            direction: from which language into which.
        """
        plans = {
            interface: draw_plan(_scenario(options, protocol, direction), texts, SEED)
            for interface, protocol in _PROTOCOLS.items()
        }
        async with (
            MetricsReader.open(address.targets) as metrics,
            Generators.run(
                options.processes, address.targets, set(_PROTOCOLS.values()), options.generator_cpus
            ) as generators,
        ):
            yield cls(options, plans, generators, metrics, address.watch_url)

    async def take_turn(self, interface: Interface) -> BusyTurn:
        """Keeps the server busy by one interface.

        Raises:
            BusyServerError: if it does not tell what it does, or does nothing.
            GeneratorLostError: if clients die.
        """
        plan, clients = self._plans[interface], self._options.clients
        record = Record(plan, clients)
        before = await self._state()
        start_seconds = self._generators.start_seconds(plan)
        asking = asyncio.ensure_future(
            self._generators.carry_out(plan, start_seconds, Bound(), record.add, users=clients)
        )
        try:
            await asyncio.sleep(start_seconds + self._options.warm_up_seconds - time.monotonic())
            first = await self._read()
            last = await self._read_after_work(first, _REQUESTS[interface], asking)
            self._generators.halt()
            await asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        served = _requests(before, await self._state(), _REQUESTS[interface])
        return _turn(record, first, last, _REQUESTS[interface], served)

    async def _read_after_work(self, first: _Reading, requests: str, asking: "asyncio.Future[None]") -> _Reading:
        """Returns what the server says when the measured time is over, and it has done something in it."""
        while True:
            await asyncio.wait((asking,), timeout=self._options.seconds)
            last = await self._read()
            if _requests(first.state, last.state, requests) and last.cpu.runs > first.cpu.runs:
                return last
            if asking.done():
                asking.result()
                raise BusyServerError(f"{requests}: the server answered nothing")

    async def _read(self) -> _Reading:
        """Returns what the server says now, which costs it some milliseconds."""
        state = await self._state()
        cpu = await asyncio.to_thread(read_cpu_times, self._watch_url)
        return _Reading(time.monotonic(), state, cpu)

    async def _state(self) -> ServerState:
        state = await self._metrics.read()
        if state is None:
            raise BusyServerError("the server does not show its metrics")
        return state


async def measure_busy(
    server: BusyServer, options: ServiceOptions, texts: Sequence[str], advance: Callable[[], object]
) -> BusyResult:
    """Has every interface take its turn in every round, beginning with another one each time.

    Args:
        server: with its clients.
        options: of the benchmark.
        texts: that are asked for.
        advance: is called after each turn.

    Raises:
        BusyServerError: if the server does not tell what it does.
        GeneratorLostError: if clients die.
    """
    turns: dict[Interface, list[BusyTurn]] = {interface: [] for interface in INTERFACES}
    for number in range(options.rounds):
        for interface in in_turn(INTERFACES, number):
            turns[interface].append(await server.take_turn(interface))
            advance()
    return BusyResult(options.clients, len(texts), options.words, turns)


def _scenario(options: ServiceOptions, protocol: Protocol, direction: BundleDirection) -> Scenario:
    kind = RequestKind(protocol=protocol, source_language=direction.source, target_language=direction.target)
    # In a closed loop nobody keeps to the rate: it only makes enough requests to choose from.
    rate = options.clients * SENTENCES_OF_A_CLIENT / LONGEST_SECONDS
    phase = ConstantPhase(arrivals="constant", rate=rate, duration_seconds=LONGEST_SECONDS)
    return Scenario(warm_up_seconds=0, requests=(kind,), phases=(phase,))


def _turn(record: Record, first: _Reading, last: _Reading, requests: str, served: int) -> BusyTurn:
    sentences = _requests(first.state, last.state, requests)
    seconds = last.seconds - first.seconds
    return BusyTurn(
        seconds,
        sentences,
        sentences / seconds,
        rows_per_step(first.state, last.state),
        last.cpu.since(first.cpu),
        record.outcomes[OK],
        served,
        {outcome: count for outcome, count in sorted(record.outcomes.items()) if outcome != OK},
    )


def _requests(first: ServerState, last: ServerState, requests: str) -> int:
    """Returns how many requests the server answered in between."""
    return last.requests.get(requests, 0) - first.requests.get(requests, 0)
