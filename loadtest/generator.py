"""Load generator processes: open-loop and closed-loop.

In an open loop every request is sent at its intended time, and latency starts at that time. A stalled server is
therefore charged for the requests it delays, even for those not yet sent. The generator's own delay is recorded apart,
as lag. In a closed loop users wait for their answers, so a stall holds them back and hardly shows in the latency.
Separate processes keep the send times independent of the reporting side. They come from a fork server that has imported
everything, so a start takes milliseconds and inherits no threads. Times are seconds of the monotonic clock, which all
processes of the machine share.
"""

import asyncio
import itertools
import math
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import NamedTuple, Self

from dragoman.loadtest.clients import GONE, Answer, Client, Targets, open_clients
from dragoman.loadtest.plan import LoadPlan
from dragoman.loadtest.protocols import PROTOCOLS, Protocols
from dragoman.loadtest.samples import Book, Samples
from dragoman.loadtest.scenario import LoadProtocol, LoadRequest
from dragoman.model.errors import UserError


async def run_open_loop(client: Client, plan: LoadPlan, start_seconds: float, book: Book, stop: asyncio.Event) -> None:
    """Sends every request of a plan at its time; returns when all have ended.

    Any number of requests may be in flight. `start_seconds` is event loop time. No request is sent after `stop` is set.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        for intended_seconds, request in zip(plan.arrivals.tolist(), plan.requests, strict=True):
            # A late generator still yields here, so that the tasks it has created can send.
            await asyncio.sleep(max(0.0, start_seconds + intended_seconds - loop.time()))
            if stop.is_set():
                return
            book.begin(intended_seconds)
            group.create_task(_send(client, request, intended_seconds, start_seconds, book))


async def run_closed_loop(
    client: Client, users: Sequence[LoadPlan], start_seconds: float, book: Book, stop: asyncio.Event
) -> None:
    """Runs users that each send the next request when the last has ended; returns when all have ended.

    A user repeats the requests of its plan for the plan's duration; the send times are ignored.
    """
    loop = asyncio.get_running_loop()

    async def use(plan: LoadPlan) -> None:
        await asyncio.sleep(start_seconds - loop.time())
        requests = itertools.cycle(plan.requests)
        while (now_seconds := max(0.0, loop.time() - start_seconds)) < plan.duration_seconds and not stop.is_set():
            book.begin(now_seconds)
            await _send(client, next(requests), now_seconds, start_seconds, book)

    async with asyncio.TaskGroup() as group:
        for plan in users:
            group.create_task(use(plan))


async def _send(client: Client, request: LoadRequest, intended: float, start: float, book: Book) -> None:
    loop = asyncio.get_running_loop()
    sent = loop.time() - start
    try:
        async with asyncio.timeout(request.cancel_after_seconds):
            answer = await client.send(request)
    except TimeoutError:
        answer = Answer(GONE)
    first = math.nan if answer.first_seconds is None else answer.first_seconds - start
    book.end(request, answer.outcome, (intended, sent, loop.time() - start, first))


# Stops the sending of the current order; a process without one ignores it.
HALT = signal.SIGUSR1
REPORT_SECONDS = 0.5


class Order(NamedTuple):
    """One process's share of a run, and its number of users in a closed loop."""

    plan: LoadPlan
    start_seconds: float
    users: int | None

    async def carry_out(self, client: Client, parent: "Connection[object, object]") -> None:
        """Sends the requests and reports their samples, then None, when all have ended."""
        book, stop = Book(), asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(HALT, stop.set)
        sending = asyncio.create_task(self._send(client, book, stop))
        while not sending.done():
            await asyncio.wait({sending}, timeout=REPORT_SECONDS)
            parent.send(book.take())
        sending.result()
        parent.send(None)

    async def _send(self, client: Client, book: Book, stop: asyncio.Event) -> None:
        if self.users is None:
            await run_open_loop(client, self.plan, self.start_seconds, book, stop)
            return
        shares = (self.plan.share(number, self.users) for number in range(self.users))
        # With more users than requests, some shares are empty; those users send the whole plan.
        users = [share if share.requests else self.plan for share in shares if self.plan.requests]
        await run_closed_loop(client, users, self.start_seconds, book, stop)


def work(
    parent: "Connection[object, Order]",
    targets: Targets,
    protocols: Collection[LoadProtocol],
    cpus: Collection[int],
    known: Protocols,
) -> None:
    """Carries out orders until the parent process kills this one or ends, on the given CPUs (empty for any)."""
    # The parent process handles Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(HALT, signal.SIG_IGN)
    if cpus:
        os.sched_setaffinity(0, cpus)

    async def serve() -> None:
        async with open_clients(targets, protocols, known) as client:
            while True:
                order = await asyncio.to_thread(parent.recv)
                await order.carry_out(client, parent)

    with suppress(EOFError, ConnectionError):
        asyncio.run(serve())


# Time to send the shares of a plan to the processes before the run starts.
AHEAD_SECONDS = 0.2
AHEAD_SECONDS_PER_REQUEST = 2e-5
END_SECONDS = 10.0


class GeneratorLostError(UserError):
    """A generator process died, so its requests cannot be accounted for."""


class Generators:
    """The generator processes, as their parent sees them."""

    def __init__(self, processes: "Sequence[tuple[ForkServerProcess, Connection[Order, Samples | None]]]") -> None:
        self._processes = processes

    @classmethod
    @asynccontextmanager
    async def run(
        cls,
        count: int,
        targets: Targets,
        protocols: Collection[LoadProtocol],
        cpus: Collection[int] = (),
        known: Protocols = PROTOCOLS,
    ) -> AsyncIterator[Self]:
        """Starts processes on the given CPUs (empty for any), and ends them with the block."""
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([work.__module__])
        processes = []
        for _ in range(count):
            parent_end, child_end = context.Pipe()
            process = context.Process(target=work, args=(child_end, targets, protocols, cpus, known), daemon=True)
            process.start()
            child_end.close()
            processes.append((process, parent_end))
        try:
            yield cls(processes)
        finally:
            for process, _ in processes:
                process.kill()
                process.join()

    @property
    def process_ids(self) -> list[int]:
        """Process ids."""
        return [process.pid for process, _ in self._processes if process.pid is not None]

    def start_seconds(self, plan: LoadPlan) -> float:
        """Returns the earliest start of a run of a plan, by the machine's monotonic clock."""
        return time.monotonic() + AHEAD_SECONDS + AHEAD_SECONDS_PER_REQUEST * len(plan.requests)

    async def carry_out(
        self,
        plan: LoadPlan,
        start_seconds: float,
        on_samples: Callable[[Samples], None],
        *,
        users: int | None = None,
        may_be_lost: bool = False,
    ) -> None:
        """Runs a plan on all processes; returns when every request has ended.

        `on_samples` receives the requests in increments. In a closed loop, `users` is their number. If processes may be
        lost, the requests that they did not report are missing; else GeneratorLostError is raised if a process dies.
        """
        count = len(self._processes)

        async def watch(number: int, process: ForkServerProcess, line: "Connection[Order, Samples | None]") -> None:
            share = None if users is None else len(range(number, users, count))
            try:
                # A large plan exceeds the pipe's buffer, so the send blocks until the process has read it.
                await asyncio.to_thread(line.send, Order(plan.share(number, count), start_seconds, share))
                while (samples := await asyncio.to_thread(line.recv)) is not None:
                    on_samples(samples)
            except (EOFError, OSError) as error:  # the second one in the middle of a message
                if not may_be_lost:
                    process.join(END_SECONDS)
                    problem = f"a load generator process exited with status {process.exitcode}"
                    raise GeneratorLostError(problem) from error

        await asyncio.gather(*(watch(number, *worker_process) for number, worker_process in enumerate(self._processes)))

    def halt(self) -> None:
        """Stops sending requests of the current run."""
        for process, _ in self._processes:
            if process.pid is not None and process.is_alive():
                os.kill(process.pid, HALT)
