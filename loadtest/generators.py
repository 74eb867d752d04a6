"""The processes that generate load, seen from outside: started, given their parts of a plan, listened to, stopped.

They come from a server process that has imported everything and does nothing but fork, so that starting one more takes
milliseconds and inherits no threads. What happens inside is `loadtest.generator_worker`.
"""

import asyncio
import multiprocessing
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Self

from loadtest.clients import Targets
from loadtest.generator_worker import Done, Halt, Order, work
from loadtest.plan import Plan
from loadtest.request import Protocol
from loadtest.tally import Bound, PackedTallies

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
        cls, count: int, targets: Targets, protocols: Collection[Protocol], cpus: Collection[int] = ()
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
