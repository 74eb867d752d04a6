"""The inside of a process that generates load: takes parts of plans, keeps them, and reports tallies while it does.

A process of its own keeps the generator's time free from those who watch it. The clock is the machine's monotonic one,
which all processes share. The other side is `loadtest.generators`.
"""

import asyncio
import os
import signal
from collections.abc import Collection
from dataclasses import dataclass
from multiprocessing.connection import Connection

import numpy as np

from loadtest.clients import Targets, open_clients
from loadtest.generator import run_closed_loop, run_open_loop
from loadtest.plan import Plan
from loadtest.request import LoadRequest, Protocol
from loadtest.sample import Sample
from loadtest.tally import Bound, Cell, PackedTallies, Tally

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
    protocols: Collection[Protocol],
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

    async def serve(self, targets: Targets, protocols: Collection[Protocol]) -> None:
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
