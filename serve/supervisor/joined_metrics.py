"""Reads the metrics of all workers and writes them as those of one service."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge, ProcessCollector, generate_latest

from dragoman.serve.host.process_link import LinkClosedError
from dragoman.serve.observability.merged_metrics import SUPERVISOR, Family, MergedMetrics, snapshot
from dragoman.serve.supervisor.worker_process import WorkerProcess

# A worker that takes longer is shown with the values that it sent before.
ANSWER_SECONDS = 2.0
# A killed worker loses the counts of at most this time.
INTERVAL_SECONDS = 5.0

RestartReason = Literal["asked", "ended", "hanging"]


class JoinedMetrics:
    """The metrics of the workers, present and past, as `merged`, and of the supervisor."""

    def __init__(self, workers: Sequence[WorkerProcess]) -> None:
        """Starts without values; `workers` are the running ones at any time."""
        self._workers = workers
        self.merged = MergedMetrics()
        self._own = CollectorRegistry()
        ProcessCollector(registry=self._own)
        self._processes = Gauge("dragoman_processes", "Processes that accept requests.", registry=self._own)
        restarts = Counter(
            "dragoman_process_restarts", "Replaced processes, by reason.", ("reason",), registry=self._own
        )
        self.restarts: dict[RestartReason, Counter] = {
            reason: restarts.labels(reason) for reason in get_args(RestartReason)
        }
        self._lock = asyncio.Lock()
        # The reading that waits for the lock, with all who wait for it.
        self._next: asyncio.Task[str] | None = None

    def update(self, worker: WorkerProcess, families: list[Family] | None) -> None:
        """Takes note of the values of a worker that serves."""
        if families is not None and worker.serving.is_set():
            self.merged.update(worker.process_id, str(worker.number), families)

    async def read(self) -> str:
        """Returns the metrics in Prometheus text format. Who asks while they are read shares the next reading."""
        if self._next is None:
            self._next = asyncio.create_task(self._read())
        return await asyncio.shield(self._next)

    async def _read(self) -> str:
        async with self._lock:
            self._next = None
            await self._collect()
            self._processes.set(sum(worker.state.listening and not worker.replaced for worker in self._workers))
            self.merged.update(os.getpid(), SUPERVISOR, snapshot(self._own))
            return generate_latest(self.merged).decode()

    async def follow(self) -> None:
        """Reads the metrics from time to time, for the case that a worker is killed."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            await self._collect()

    async def _collect(self) -> None:
        async def ask(worker: WorkerProcess) -> None:
            with suppress(LinkClosedError):
                self.update(worker, await worker.link.ask("collect", seconds=ANSWER_SECONDS))

        await asyncio.gather(*(ask(item) for item in tuple(self._workers)))
