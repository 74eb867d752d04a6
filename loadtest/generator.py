"""Load generator processes: open-loop and closed-loop.

In an open loop every request is sent at its intended time, and latency starts at that time. A stalled server is
therefore charged for the requests it delays, even for those not yet sent. The generator's own delay is recorded apart,
as lag. In a closed loop users wait for their answers, so a stall holds them back and hardly shows in the latency.
Separate processes keep the send times independent of the reporting side. They come from a fork server that has imported
everything, so a start takes milliseconds and inherits no threads. Times are seconds of the monotonic clock, which all
processes of the machine share.
"""

import asyncio
import multiprocessing
import os
import signal
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Protocol, Self

import numpy as np

from loadtest.clients import GONE, Answer, Client, Targets, open_clients
from loadtest.plan import Plan
from loadtest.protocols import PROTOCOLS, Protocols
from loadtest.scenario import LoadProtocol, LoadRequest, Objective
from loadtest.tally import Cell, Sample, Tallies, Tally


class Recorder(Protocol):
    """Records the start and the end of requests."""

    def begin(self, request: LoadRequest, intended_seconds: float) -> None:
        """Records that a request is being sent."""

    def end(self, sample: Sample) -> None:
        """Records that a request has ended."""


async def run_open_loop(client: Client, plan: Plan, start_seconds: float, book: Recorder, stop: asyncio.Event) -> None:
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
            book.begin(request, intended_seconds)
            group.create_task(_send(client, request, intended_seconds, start_seconds, book))


async def run_closed_loop(
    client: Client, users: Sequence[Plan], start_seconds: float, book: Recorder, stop: asyncio.Event
) -> None:
    """Runs users that each send the next request when the last has ended; returns when all have ended.

    A user repeats the requests of its plan for the plan's duration; the send times are ignored.
    """
    loop = asyncio.get_running_loop()

    async def use(plan: Plan) -> None:
        await asyncio.sleep(start_seconds - loop.time())
        number = 0
        while (now_seconds := loop.time() - start_seconds) < plan.duration_seconds and not stop.is_set():
            request = plan.requests[number % len(plan.requests)]
            book.begin(request, now_seconds)
            await _send(client, request, now_seconds, start_seconds, book)
            number += 1

    async with asyncio.TaskGroup() as group:
        for plan in users:
            group.create_task(use(plan))


async def _send(
    client: Client, request: LoadRequest, intended_seconds: float, start_seconds: float, book: Recorder
) -> None:
    loop = asyncio.get_running_loop()
    sent_seconds = loop.time() - start_seconds
    try:
        async with asyncio.timeout(request.cancel_after_seconds):
            answer = await client.send(request)
    except TimeoutError:
        answer = Answer(GONE)
    ended_seconds = loop.time() - start_seconds
    first_seconds = None if answer.first_seconds is None else answer.first_seconds - start_seconds
    book.end(Sample(request, intended_seconds, sent_seconds, ended_seconds, answer.outcome, first_seconds))


REPORT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Order:
    """One process's part of a run, and its number of users in a closed loop."""

    plan: Plan
    start_seconds: float
    objective: Objective | None
    users: int | None


# The messages between the processes, next to orders and tallies: the parent stops the sending of the current order;
# a process has reported the last tallies of an order.
HALT, DONE = "halt", "done"


class TallyBook:
    """Counts requests by time slice and kind, and returns the counts in increments."""

    def __init__(self, plan: Plan, objective: Objective | None) -> None:
        self._ends = [each.end_seconds for each in plan.slices]
        self._objective = objective
        self._tallies: defaultdict[Cell, Tally] = defaultdict(Tally)

    def begin(self, request: LoadRequest, intended_seconds: float) -> None:
        """Counts a request that is being sent."""
        self._tally(request, intended_seconds).sent += 1

    def end(self, sample: Sample) -> None:
        """Counts a request that has ended."""
        self._tally(sample.request, sample.intended_seconds).record(sample, self._objective)

    def take(self) -> Tallies:
        """Returns the tallies since the last call."""
        taken, self._tallies = self._tallies, defaultdict(Tally)
        return taken

    def _tally(self, request: LoadRequest, intended_seconds: float) -> Tally:
        number = min(int(np.searchsorted(self._ends, intended_seconds, side="right")), len(self._ends) - 1)
        return self._tallies[Cell(number, request.kind)]


def work(
    connection: "Connection[object, object]",
    targets: Targets,
    protocols: Collection[LoadProtocol],
    cpus: Collection[int],
    known: Protocols,
) -> None:
    """Runs orders until the connection closes, on the given CPUs (empty for any), and reports tallies."""
    # The parent process handles Ctrl-C and then closes the connection.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if cpus:
        os.sched_setaffinity(0, cpus)

    async def serve() -> None:
        worker = _Worker(connection)
        async with open_clients(targets, protocols, known) as client:
            await worker.serve(client)

    asyncio.run(serve())


class _Worker:
    """Runs the orders of a process. Reads its connection from the moment of its creation."""

    def __init__(self, connection: "Connection[object, object]") -> None:
        self._connection = connection
        self._orders: asyncio.Queue[Order | None] = asyncio.Queue()
        self._stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(connection.fileno(), self._read)

    async def serve(self, client: Client) -> None:
        while (order := await self._orders.get()) is not None:
            self._stop.clear()
            book = TallyBook(order.plan, order.objective)
            reporting = asyncio.create_task(self._report(book))
            if order.users is None:
                await run_open_loop(client, order.plan, order.start_seconds, book, self._stop)
            else:
                parts = (order.plan.part(number, order.users) for number in range(order.users))
                # With more users than requests, some parts are empty; those users send the whole plan.
                users = [part if part.requests else order.plan for part in parts if order.plan.requests]
                await run_closed_loop(client, users, order.start_seconds, book, self._stop)
            reporting.cancel()
            self._send(book.take())
            self._send(DONE)

    async def _report(self, book: TallyBook) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self._send(book.take())

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except BrokenPipeError:
            # The parent process is gone.
            self._stop.set()

    def _read(self) -> None:
        try:
            message = self._connection.recv()
        except EOFError:
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
            message = None
        if message is None or message == HALT:
            self._stop.set()
        if message is None or isinstance(message, Order):
            self._orders.put_nowait(message)


# Time to send the parts of a plan to the processes before the run starts.
AHEAD_SECONDS = 0.2
AHEAD_SECONDS_PER_REQUEST = 2e-5
END_SECONDS = 10.0

OnTallies = Callable[[Tallies], None]


class GeneratorLostError(Exception):
    """A generator process died, so its requests cannot be accounted for."""


class Generators:
    """The generator processes, as their parent sees them."""

    def __init__(self, processes: list["_Process"]) -> None:
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
        """Starts processes on the given CPUs (empty for any), and ends them with the block.

        `known` defines the protocols.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([work.__module__])
        processes = []
        for _ in range(count):
            parent_end, child_end = context.Pipe()
            process = context.Process(target=work, args=(child_end, targets, protocols, cpus, known), daemon=True)
            process.start()
            child_end.close()
            processes.append(_Process(process, parent_end))
        try:
            yield cls(processes)
        finally:
            for each in processes:
                each.close()

    @property
    def process_ids(self) -> list[int]:
        """Process ids."""
        return [each.process_id for each in self._processes]

    def start_seconds(self, plan: Plan) -> float:
        """Returns the earliest start of a run of a plan, by the machine's monotonic clock."""
        return time.monotonic() + AHEAD_SECONDS + AHEAD_SECONDS_PER_REQUEST * len(plan.requests)

    async def carry_out(
        self,
        plan: Plan,
        start_seconds: float,
        objective: Objective | None,
        on_tallies: OnTallies,
        *,
        users: int | None = None,
        may_be_lost: bool = False,
    ) -> None:
        """Runs a plan on all processes; returns when every request has ended.

        `on_tallies` receives the counts in increments. In a closed loop, `users` is their number. If processes may be
        lost, the requests that they did not report are missing.

        Raises:
            GeneratorLostError: if a process dies and `may_be_lost` is false.
        """
        count = len(self._processes)
        shares = [None if users is None else len(range(number, users, count)) for number in range(count)]
        orders = [Order(plan.part(number, count), start_seconds, objective, each) for number, each in enumerate(shares)]
        await asyncio.gather(
            *(
                process.carry_out(order, on_tallies, may_be_lost=may_be_lost)
                for process, order in zip(self._processes, orders, strict=True)
            )
        )

    def halt(self) -> None:
        """Stops sending requests of the current run."""
        for each in self._processes:
            each.send(HALT)


class _Process:
    """A generator process and the messages that it has sent; None if it has died."""

    def __init__(self, process: ForkServerProcess, connection: "Connection[object, object]") -> None:
        self._process = process
        self._connection = connection
        self._messages: asyncio.Queue[object] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connection.fileno(), self._read)

    @property
    def process_id(self) -> int:
        pid = self._process.pid
        if pid is None:
            raise AssertionError("the process has been started")
        return pid

    async def carry_out(self, order: Order, on_tallies: OnTallies, *, may_be_lost: bool) -> None:
        # A large plan exceeds the pipe's buffer, so the send blocks until the process has read it.
        await asyncio.to_thread(self.send, order)
        while (message := await self._messages.get()) != DONE:
            if isinstance(message, dict):
                on_tallies(message)
            elif may_be_lost:
                return
            else:
                raise GeneratorLostError(f"a load generator process exited with status {self._process.exitcode}")

    def send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError:
            # The process is dead; the reader of its messages reports that.
            self._process.kill()

    def close(self) -> None:
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        self._process.join(END_SECONDS)
        self._process.kill()

    def _read(self) -> None:
        try:
            self._messages.put_nowait(self._connection.recv())
        except (EOFError, OSError):
            self._loop.remove_reader(self._connection.fileno())
            self._messages.put_nowait(None)
