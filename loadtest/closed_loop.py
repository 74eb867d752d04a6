"""Clients that keep servers busy: each waits for its answer and asks again at once (a closed loop).

It tells what servers can do at most with so many clients, and nothing of latency under load. What the servers did is
what they say themselves at both ends of the measured time, in which the clients do not stop. Knows no server; called by
the benchmarks that keep servers busy.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from loadtest.generator import Generators
from loadtest.plan import Plan, draw_plan
from loadtest.scenario import ConstantPhase, RequestKind, Scenario
from loadtest.server_metrics import MetricsReader, ServerState
from loadtest.tally import Bound, Record

SEED = 1
# The clients go on until they are stopped, but not for ever.
LONGEST_SECONDS = 600.0
# Sentences that each client draws; it begins again with the first when it has asked for all.
SENTENCES_OF_A_CLIENT = 20
# A server that is kept busy on few CPUs may take long to say what it does, and a measurement ends without it.
STATE_TIMEOUT_SECONDS = 60.0

Reading = TypeVar("Reading")


class BusyServerError(Exception):
    """A server does not tell what it does, or does nothing."""


async def read_state(metrics: MetricsReader) -> ServerState:
    """Returns what a server says now.

    Raises:
        BusyServerError: if it says nothing that is known.
    """
    state = await metrics.read(STATE_TIMEOUT_SECONDS)
    if state is None:
        raise BusyServerError("a server does not show its metrics")
    return state


@dataclass(frozen=True, slots=True)
class BusyTime(Generic[Reading]):
    """A time in which clients kept servers busy.

    Attributes:
        record: of every request, the warm-up's included.
        first: what the servers said at the begin of the measured time.
        last: the same at its end.
    """

    record: Record
    first: Reading
    last: Reading


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Clients, and how long they ask.

    Attributes:
        clients: so many.
        warm_up_seconds: that go before the measured time.
        seconds: of the measured time.
    """

    clients: int
    warm_up_seconds: float
    seconds: float

    def plan(self, kind: RequestKind, texts: Sequence[str]) -> Plan:
        """Returns what the clients ask for: texts of these, drawn at random."""
        # In a closed loop nobody keeps to the rate: it only makes enough requests to choose from.
        rate = self.clients * SENTENCES_OF_A_CLIENT / LONGEST_SECONDS
        phase = ConstantPhase(arrivals="constant", rate=rate, duration_seconds=LONGEST_SECONDS)
        return draw_plan(Scenario(warm_up_seconds=0, requests=(kind,), phases=(phase,)), texts, SEED)

    async def keep_busy(
        self,
        generators: Generators,
        plan: Plan,
        read: Callable[[], Awaitable[Reading]],
        worked: Callable[[Reading, Reading], bool],
    ) -> BusyTime[Reading]:
        """Has the clients ask until the measured time is over.

        Args:
            generators: the processes that hold the clients.
            plan: what they ask for.
            read: returns what the servers say now.
            worked: whether the servers did anything between two readings; until they did, the time goes on.

        Raises:
            BusyServerError: if the servers do nothing, or as `read`.
            GeneratorLostError: if clients die.
        """
        record = Record(plan, self.clients)
        start_seconds = generators.start_seconds(plan)
        asking = asyncio.ensure_future(
            generators.carry_out(plan, start_seconds, Bound(), record.add, users=self.clients)
        )
        try:
            await asyncio.sleep(start_seconds + self.warm_up_seconds - time.monotonic())
            first = await read()
            while True:
                await asyncio.wait((asking,), timeout=self.seconds)
                last = await read()
                if worked(first, last):
                    break
                if asking.done():
                    asking.result()
                    raise BusyServerError("the clients have asked, and nothing was answered")
            generators.halt()
            await asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        return BusyTime(record, first, last)
