"""One of several processes that serve the same ports, and its link to the supervisor.

The supervisor asks for metrics, reloads and the end; the worker reports its state. A request for all processes, such as
a scrape or a reload by an operator, reaches one worker, which passes it on.
"""

import asyncio
import signal
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.serve.errors import DrainingError
from dragoman.serve.host.process_link import LinkClosedError, ProcessLink
from dragoman.serve.observability.merged_metrics import Family, snapshot
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.registry.lifecycle import Lifecycle
from dragoman.serve.registry.reloader import Reloader, ReloadReport

# The timeout of messages that the supervisor only takes note of.
NOTE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class WorkerSlot:
    """What a worker gets from the supervisor.

    Attributes:
        number: from 0; a worker has the number of the one that it replaces.
        link: the worker's end.
        http_socket: listens for all workers.
        grpc_port: the port that every worker opens.
        parsers: the socket for calls of parsers; see `dragoman.serve.sandbox.host`.
        listens_at_once: whether the worker opens its ports before it is ready, because no other worker is.
    """

    number: int
    link: socket.socket
    http_socket: socket.socket
    grpc_port: int
    parsers: socket.socket
    listens_at_once: bool


@dataclass(frozen=True, slots=True)
class WorkerState:
    """What the supervisor has of a worker."""

    listening: bool = False
    ready: bool = False
    live: bool = True


class Worker:
    """The worker's side of the link; `replaced`: whether another worker has taken its place, so that it should stop."""

    def __init__(self, slot: WorkerSlot, stop: asyncio.Event) -> None:
        """Takes over the link; `stop` is set when the supervisor ends. Requires a running event loop."""
        self.slot = slot
        self._stop = stop
        self._link = ProcessLink(slot.link, self._answer)
        self.replaced = False
        self._served: tuple[Lifecycle, ServiceMetrics, Reloader] | None = None
        self._reported = WorkerState()
        self._running = asyncio.create_task(self._run())

    def attach(self, lifecycle: Lifecycle, metrics: ServiceMetrics, reloader: Reloader) -> None:
        """Answers for a service from now on."""
        self._served = lifecycle, metrics, reloader
        # The first workers are ready together, when the supervisor says so.
        lifecycle.others_ready = not self.slot.listens_at_once

    def stop_on_signals(self) -> None:
        """Makes SIGTERM set the stop event. The supervisor decides on all other signals."""
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._stop.set)

    async def report(self, state: WorkerState) -> None:
        """Reports the state to the supervisor if it has changed."""
        if state != self._reported:
            self._reported = state
            await self._note("state", asdict(state))

    async def report_failure(self, problem: str) -> None:
        """Reports to the supervisor why this process cannot serve."""
        await self._note("failure", problem)

    async def finish(self) -> None:
        """Sends the last values of the metrics, and closes the link."""
        if self._served is not None:
            lifecycle, metrics, _ = self._served
            await self._note("metrics", _snapshot(lifecycle, metrics))
        self._running.cancel()

    async def read_metrics(self) -> bytes:
        """Returns the metrics of all processes as text; raises DrainingError if the supervisor does not answer."""
        return str(await self._ask("scrape")).encode()

    async def reload(self) -> ReloadReport:
        """Reloads the models of all processes, and returns the report; raises DrainingError if the service stops."""
        return ReloadReport(**await self._ask("reload"))

    async def _run(self) -> None:
        await self._link.run()
        self._stop.set()

    async def _ask(self, name: str) -> Any:
        try:
            return await self._link.ask(name)
        except LinkClosedError as error:
            raise DrainingError("shutting down") from error

    async def _note(self, name: str, value: Any) -> None:
        with suppress(LinkClosedError):
            await self._link.ask(name, value, seconds=NOTE_SECONDS)

    async def _answer(self, name: str, value: Any) -> Any:
        if self._served is None or name == "ping":
            return None
        lifecycle, metrics, reloader = self._served
        match name:
            case "collect":
                return _snapshot(lifecycle, metrics)
            case "others_ready":
                lifecycle.others_ready = value
            case "reload":
                return asdict(await reloader.reload())
            case "retire":
                self.replaced = True
                self._stop.set()
        return None


def _snapshot(lifecycle: Lifecycle, metrics: ServiceMetrics) -> list[Family]:
    lifecycle.refresh()
    return snapshot(metrics.registry)
