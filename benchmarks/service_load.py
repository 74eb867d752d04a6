"""A watched server that many clients keep busy, by one interface after the other.

The clients are those of `loadtest.closed_loop`, in processes of their own. Called by
`benchmarks.service`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Self

from benchmarks.cpu_times import CpuTimes, read_cpu_times
from benchmarks.harness.rounds import take_turns
from benchmarks.service_options import ServiceOptions
from benchmarks.service_results import INTERFACES, BusyResult, BusyTurn, Interface
from loadtest.client import OK
from loadtest.clients import Targets
from loadtest.closed_loop import BusyTime, ClosedLoop, read_state
from loadtest.generators import Generators
from loadtest.plan import Plan
from loadtest.request import Languages, Protocol
from loadtest.scenario import RequestKind
from loadtest.server_metrics import MetricsReader, ServerState, rows_per_step

_PROTOCOLS: dict[Interface, Protocol] = {"gRPC": "grpc", "REST": "rest", "TranslateMany": "grpc-many"}
# As the server counts them.
_REQUESTS: dict[Interface, str] = {
    "gRPC": "grpc translate ok",
    "REST": "rest translate ok",
    "TranslateMany": "grpc translate_many ok",
}


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
        loop: ClosedLoop,
        plans: dict[Interface, Plan],
        generators: Generators,
        metrics: MetricsReader,
        watch_url: str,
    ) -> None:
        self._loop = loop
        self._plans = plans
        self._generators = generators
        self._metrics = metrics
        self._watch_url = watch_url

    @classmethod
    @asynccontextmanager
    async def open(
        cls, options: ServiceOptions, address: BusyAddress, texts: Sequence[str], languages: Languages
    ) -> AsyncIterator[Self]:
        """Starts the clients, and stops them when the block ends.

        Args:
            options: of the benchmark.
            address: of the server.
            texts: that are asked for, one in each request.
            languages: from which into which.
        """
        loop = ClosedLoop(options.clients, options.warm_up_seconds, options.seconds)
        asked = {**asdict(languages), "options": options.search_options}
        plans = {
            interface: loop.plan(RequestKind(protocol=protocol, **asked), texts)
            for interface, protocol in _PROTOCOLS.items()
        }
        async with (
            MetricsReader.open(address.targets) as metrics,
            Generators.run(
                options.processes, address.targets, set(_PROTOCOLS.values()), options.generator_cpus
            ) as generators,
        ):
            yield cls(loop, plans, generators, metrics, address.watch_url)

    async def take_turn(self, interface: Interface) -> BusyTurn:
        """Keeps the server busy by one interface.

        Raises:
            BusyServerError: if it does not tell what it does, or does nothing.
            GeneratorLostError: if clients die.
        """
        requests = _REQUESTS[interface]

        def worked(first: _Reading, last: _Reading) -> bool:
            return _requests(first.state, last.state, requests) > 0 and last.cpu.runs > first.cpu.runs

        before = await read_state(self._metrics)
        busy = await self._loop.keep_busy(self._generators, self._plans[interface], self._read, worked)
        return _turn(busy, requests, _requests(before, await read_state(self._metrics), requests))

    async def _read(self) -> _Reading:
        """Returns what the server says now, which costs it some milliseconds."""
        state = await read_state(self._metrics)
        cpu = await asyncio.to_thread(read_cpu_times, self._watch_url)
        return _Reading(time.monotonic(), state, cpu)


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
    turns = await take_turns(INTERFACES, options.rounds, server.take_turn, advance)
    return BusyResult(options.clients, len(texts), options.words, turns)


def _turn(busy: BusyTime[_Reading], requests: str, served: int) -> BusyTurn:
    record, first, last = busy.record, busy.first, busy.last
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
        record.failed,
    )


def _requests(first: ServerState, last: ServerState, requests: str) -> int:
    """Returns how many requests the server answered in between."""
    return last.requests.get(requests, 0) - first.requests.get(requests, 0)
