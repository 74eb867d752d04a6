"""Replicas that run for one turn, in which clients keep all of them busy.

The clients are those of `loadtest.closed_loop`, over gRPC, and do what the published service config says: they
take turns among the replicas, and try again what one refuses. Called by `benchmarks.replicas_benchmark`.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness.affinity import running_on
from benchmarks.replicas_options import ReplicasOptions
from benchmarks.replicas_results import Layout, ReplicasTurn
from loadtest.client import OK
from loadtest.closed_loop import BusyTime, ClosedLoop, read_state
from loadtest.generators import Generators
from loadtest.reliability.replicas import balanced_by_clients, start_replicas
from loadtest.request import Protocol
from loadtest.scenario import RequestKind
from loadtest.server_metrics import MetricsReader, ServerState, rows_per_step, together
from serve.bundle.manifest import BundleDirection
from serve.server_process import server_command

PROTOCOL: Protocol = "grpc"
# As a server counts the requests of the clients.
_REQUESTS = "grpc translate ok"


@dataclass(frozen=True, slots=True)
class _Reading:
    """What replicas say at a moment of the machine's monotonic clock."""

    seconds: float
    states: Sequence[ServerState]

    @property
    def answered(self) -> list[int]:
        """Requests that each replica has answered since it started."""
        return [state.requests.get(_REQUESTS, 0) for state in self.states]


class BusyReplicas:
    """Takes turns with any number of replicas."""

    def __init__(self, options: ReplicasOptions, texts: Sequence[str], direction: BundleDirection) -> None:
        """Draws what the clients ask for.

        Args:
            options: of the benchmark.
            texts: one in each request.
            direction: from which language into which.
        """
        self._options = options
        self._loop = ClosedLoop(options.clients, options.warm_up_seconds, options.seconds)
        kind = RequestKind(protocol=PROTOCOL, source_language=direction.source, target_language=direction.target)
        self._plan = self._loop.plan(kind, texts)

    async def take_turn(self, layout: Layout) -> ReplicasTurn:
        """Starts replicas, keeps them busy, and stops them.

        Raises:
            AffinityError: if they may not run on their CPUs.
            BusyServerError: if one does not tell what it does, or none does anything.
            GeneratorLostError: if clients die.
            ServedProcessError: if one does not become ready, or does not end as it should.
        """
        options = self._options
        async with AsyncExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory(prefix="dragoman-"))
            started_seconds = time.monotonic()
            with running_on(options.server_cpus):
                each = stack.enter_context(
                    start_replicas(lambda ports: self._command(layout, ports), Path(folder), layout.replicas)
                )
            replicas = balanced_by_clients(each)
            await replicas.wait_ready()
            ready_seconds = time.monotonic() - started_seconds
            metrics = [await stack.enter_async_context(MetricsReader.open(server)) for server in replicas.servers]
            # Until a client is connected to all of them, some replica may have to refuse what would be for others.
            targets = replace(replicas.targets, retries=True)
            generators = await stack.enter_async_context(
                Generators.run(options.processes, targets, {PROTOCOL}, options.generator_cpus)
            )

            async def read() -> _Reading:
                return _Reading(time.monotonic(), await asyncio.gather(*map(read_state, metrics)))

            busy = await self._loop.keep_busy(
                generators, self._plan, read, lambda first, last: sum(last.answered) > sum(first.answered)
            )
            served = sum((await read()).answered)
            await replicas.stop()
        return _turn(busy, ready_seconds, served)

    def _command(self, layout: Layout, ports: tuple[int, int]) -> list[str]:
        engines = ["--engines", str(layout.engines), "--threads-per-engine", "1", "--slots", str(layout.slots)]
        return [*server_command(self._options.bundle, *ports), *engines]


def _turn(busy: BusyTime[_Reading], ready_seconds: float, served: int) -> ReplicasTurn:
    sentences = [last - first for first, last in zip(busy.first.answered, busy.last.answered, strict=True)]
    first, last = together(busy.first.states), together(busy.last.states)
    seconds = busy.last.seconds - busy.first.seconds
    return ReplicasTurn(
        ready_seconds,
        seconds,
        sentences,
        sum(sentences) / seconds,
        rows_per_step(first, last),
        last.cpu_seconds - first.cpu_seconds,
        last.resident_bytes,
        busy.record.outcomes[OK],
        served,
        busy.record.failed,
    )
