"""The generators: open-loop, which sends every request at its intended time however slow the answers are, and closed.

In the open loop latency runs from the intended send time, so a stalled server is charged for the requests that it kept
waiting, even those that had not been sent yet. What the generator itself was late is kept apart, as lag. In the closed
loop users wait for their answers, so a stall holds them back and hardly shows: it tells capacity for so many users, and
nothing of latency under load. Knows no protocol. Time is the event loop's monotonic clock.

The inside of a process that generates load: takes parts of plans, keeps them, and reports tallies while it does.

A process of its own keeps the generator's time free from those who watch it. The clock is the machine's monotonic one,
which all processes share. The other side is `loadtest.generator`.

The processes that generate load, seen from outside: started, given their parts of a plan, listened to, stopped.

They come from a server process that has imported everything and does nothing but fork, so that starting one more takes
milliseconds and inherits no threads. What happens inside is `loadtest.generator`.
"""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Protocol, Self

import numpy as np

from loadtest.clients import GONE, Answer, Client, Targets, open_clients
from loadtest.plan import Plan
from loadtest.scenario import LoadProtocol, LoadRequest
from loadtest.tally import Bound, Cell, PackedTallies, Sample, Tally


class Recorder(Protocol):
    """Takes down what happens."""

    def begin(self, request: LoadRequest, intended_seconds: float) -> None:
        """A request is being sent."""

    def end(self, sample: Sample) -> None:
        """It has ended."""


async def run_open_loop(client: Client, plan: Plan, start_seconds: float, book: Recorder, stop: asyncio.Event) -> None:
    """Sends every request of a plan at its time, and returns when all have ended.

    Args:
        client: sends the requests; any number may be in flight.
        plan: which and when.
        start_seconds: the start of the run, by the event loop's clock.
        book: is told of every request.
        stop: when set, no further request is sent.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        for intended_seconds, request in zip(plan.arrivals.tolist(), plan.requests, strict=True):
            # A generator that is behind still yields here, so that what it has scheduled is sent.
            await asyncio.sleep(max(0.0, start_seconds + intended_seconds - loop.time()))
            if stop.is_set():
                return
            book.begin(request, intended_seconds)
            group.create_task(_send(client, request, intended_seconds, start_seconds, book))


async def run_closed_loop(
    client: Client, users: Sequence[Plan], start_seconds: float, book: Recorder, stop: asyncio.Event
) -> None:
    """Has users send requests, each the next one when the last was answered, and returns when all have ended.

    Args:
        client: sends the requests.
        users: a plan for each, whose requests it sends in turn, over and over, while the plan lasts; when does not
            matter.
        start_seconds: the start of the run, by the event loop's clock.
        book: is told of every request.
        stop: when set, no further request is sent.
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
    """A part of a run.

    Attributes:
        plan: what this process sends.
        start_seconds: the start of the run, by the machine's monotonic clock.
        bound: which answers are good ones.
        users: in a closed loop, how many this process has; None: open loop.
    """

    plan: Plan
    start_seconds: float
    bound: Bound
    users: int | None


@dataclass(frozen=True, slots=True)
class Halt:
    """No further request of this order is to be sent."""


@dataclass(frozen=True, slots=True)
class Done:
    """Every request of an order has ended, and all tallies were reported."""


class TallyBook:
    """Counts what happens, by slice of time and kind, and hands it over bit by bit."""

    def __init__(self, plan: Plan, bound: Bound) -> None:
        self._ends = [each.end_seconds for each in plan.slices]
        self._bound = bound
        self._tallies: dict[Cell, Tally] = {}

    def begin(self, request: LoadRequest, intended_seconds: float) -> None:
        """A request is being sent."""
        self._tally(request, intended_seconds).sent += 1

    def end(self, sample: Sample) -> None:
        """It has ended."""
        self._tally(sample.request, sample.intended_seconds).record(sample, self._bound)

    def take(self) -> PackedTallies:
        """Returns what happened since the last call."""
        taken, self._tallies = self._tallies, {}
        return {cell: tally.pack() for cell, tally in taken.items()}

    def _tally(self, request: LoadRequest, intended_seconds: float) -> Tally:
        number = min(int(np.searchsorted(self._ends, intended_seconds, side="right")), len(self._ends) - 1)
        cell = Cell(number, request.kind)
        tally = self._tallies.get(cell)
        if tally is None:
            tally = self._tallies[cell] = Tally()
        return tally


def work(
    connection: "Connection[object, object]",
    targets: Targets,
    protocols: Collection[LoadProtocol],
    cpus: Collection[int],
) -> None:
    """Carries out orders until the connection closes.

    Args:
        connection: gives orders, takes tallies.
        targets: where the server is.
        protocols: which of its interfaces are used.
        cpus: on which this process may run; empty: on any.
    """
    # Ctrl-C is for the process that gives the orders, which then closes the connection.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if cpus:
        os.sched_setaffinity(0, cpus)
    asyncio.run(_Worker(connection).serve(targets, protocols))


class _Worker:
    def __init__(self, connection: "Connection[object, object]") -> None:
        self._connection = connection
        self._orders: asyncio.Queue[Order | None] = asyncio.Queue()
        self._stop = asyncio.Event()

    async def serve(self, targets: Targets, protocols: Collection[LoadProtocol]) -> None:
        loop = asyncio.get_running_loop()
        loop.add_reader(self._connection.fileno(), self._read)
        async with open_clients(targets, protocols) as client:
            while (order := await self._orders.get()) is not None:
                self._stop.clear()
                book = TallyBook(order.plan, order.bound)
                reporting = asyncio.create_task(self._report(book))
                if order.users is None:
                    await run_open_loop(client, order.plan, order.start_seconds, book, self._stop)
                else:
                    parts = (order.plan.part(number, order.users) for number in range(order.users))
                    # Of more users than requests, those who would have none of their own send all of them.
                    users = [part if part.requests else order.plan for part in parts if order.plan.requests]
                    await run_closed_loop(client, users, order.start_seconds, book, self._stop)
                reporting.cancel()
                self._tell(book.take())
                self._tell(Done())

    async def _report(self, book: TallyBook) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self._tell(book.take())

    def _tell(self, message: object) -> None:
        try:
            self._connection.send(message)
        except BrokenPipeError:
            # Nobody wants to know any more.
            self._stop.set()

    def _read(self) -> None:
        try:
            message = self._connection.recv()
        except EOFError:
            asyncio.get_running_loop().remove_reader(self._connection.fileno())
            message = None
        if isinstance(message, Order):
            self._orders.put_nowait(message)
            return
        self._stop.set()
        if message is None:
            self._orders.put_nowait(None)


# The parts of a plan are on their way before the run starts.
AHEAD_SECONDS = 0.2
AHEAD_SECONDS_PER_REQUEST = 2e-5
END_SECONDS = 10.0


class GeneratorLostError(Exception):
    """A process that generates load has died: what it would have sent or received is not known."""


class Generators:
    """Processes that wait for orders."""

    def __init__(self, processes: list["_Process"]) -> None:
        self._processes = processes

    @classmethod
    @asynccontextmanager
    async def run(
        cls, count: int, targets: Targets, protocols: Collection[LoadProtocol], cpus: Collection[int] = ()
    ) -> AsyncIterator[Self]:
        """Runs processes until the block ends.

        Args:
            count: how many.
            targets: where the server is.
            protocols: which of its interfaces are used.
            cpus: on which the processes may run; empty: on any.
        """
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([work.__module__])
        processes = []
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=work, args=(theirs, targets, protocols, cpus), daemon=True)
            process.start()
            theirs.close()
            processes.append(_Process(process, ours))
        try:
            yield cls(processes)
        finally:
            for each in processes:
                each.close()

    @property
    def process_ids(self) -> list[int]:
        """Of the operating system."""
        return [each.process_id for each in self._processes]

    def start_seconds(self, plan: Plan) -> float:
        """Returns when a run of a plan can start, by the machine's monotonic clock."""
        return time.monotonic() + AHEAD_SECONDS + AHEAD_SECONDS_PER_REQUEST * len(plan.requests)

    async def carry_out(
        self,
        plan: Plan,
        start_seconds: float,
        bound: Bound,
        on_tallies: Callable[[PackedTallies], None],
        *,
        users: int | None = None,
        may_be_lost: bool = False,
    ) -> None:
        """Has the processes keep a plan, and returns when every request has ended.

        Args:
            plan: what is sent when; each process gets its part.
            start_seconds: when the run starts.
            bound: which answers are good ones.
            on_tallies: gets what happened, bit by bit.
            users: in a closed loop, how many there are; None: open loop.
            may_be_lost: whether processes may die; what they did not report is then missing.

        Raises:
            GeneratorLostError: if one dies, unless it may.
        """
        count = len(self._processes)
        shares = [None if users is None else len(range(number, users, count)) for number in range(count)]
        orders = [Order(plan.part(number, count), start_seconds, bound, share) for number, share in enumerate(shares)]
        await asyncio.gather(
            *(
                process.carry_out(order, on_tallies, may_be_lost=may_be_lost)
                for process, order in zip(self._processes, orders, strict=True)
            )
        )

    def halt(self) -> None:
        """Has the processes send no further request of what they carry out."""
        for each in self._processes:
            each.halt()


class _Process:
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
            raise AssertionError("it was started")
        return pid

    async def carry_out(self, order: Order, on_tallies: Callable[[PackedTallies], None], *, may_be_lost: bool) -> None:
        # A large plan does not fit into the pipe at once, and the process reads it at its own pace.
        await asyncio.to_thread(self._send, order)
        while not isinstance(message := await self._messages.get(), Done):
            if isinstance(message, dict):
                on_tallies(message)
            elif may_be_lost:
                return
            else:
                raise GeneratorLostError(f"a process that generates load ended with status {self._process.exitcode}")

    def halt(self) -> None:
        self._send(Halt())

    def close(self) -> None:
        self._loop.remove_reader(self._connection.fileno())
        self._connection.close()
        self._process.join(END_SECONDS)
        self._process.kill()

    def _send(self, message: object) -> None:
        try:
            self._connection.send(message)
        except OSError:
            # It has died, which whoever listens to it learns.
            self._process.kill()

    def _read(self) -> None:
        try:
            self._messages.put_nowait(self._connection.recv())
        except (EOFError, OSError):
            self._loop.remove_reader(self._connection.fileno())
            self._messages.put_nowait(None)
