"""Closed-loop clients that keep servers busy: each sends its next request when it has its answer.

Measures the throughput at a given number of clients, not latency under load. The server's counters are read at both
ends of the measured time, while the clients go on.
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
from loadtest.tally import Record

SEED = 1
# Upper bound; the clients normally go on until they are stopped.
LONGEST_SECONDS = 600.0
# Sentences per client; a client that has sent all of them starts again with the first.
SENTENCES_OF_A_CLIENT = 20
# A saturated server on few CPUs answers /metrics late, and a timeout would end the measurement.
STATE_TIMEOUT_SECONDS = 60.0

Reading = TypeVar("Reading")


class BusyServerError(Exception):
    """The server exposes no metrics, or completes no requests."""


async def read_state(metrics: MetricsReader) -> ServerState:
    """Reads the server's metrics.

    Raises:
        BusyServerError: if the metrics cannot be read.
    """
    state = await metrics.read(STATE_TIMEOUT_SECONDS)
    if state is None:
        raise BusyServerError("/metrics: expected the server's metrics, got none")
    return state


@dataclass(frozen=True, slots=True)
class BusyTime(Generic[Reading]):
    """The requests of a closed loop with its warm-up, and the metrics at both ends of the measured time."""

    record: Record
    first: Reading
    last: Reading


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Number of clients, warm-up time and measured time."""

    clients: int
    warm_up_seconds: float
    seconds: float

    def plan(self, kind: RequestKind, texts: Sequence[str]) -> Plan:
        """Draws the requests of the clients at random from the texts."""
        # A closed loop ignores the rate. It only determines how many requests the plan holds.
        rate = self.clients * SENTENCES_OF_A_CLIENT / LONGEST_SECONDS
        phase = ConstantPhase(rate=rate, duration_seconds=LONGEST_SECONDS)
        return draw_plan(Scenario(warm_up_seconds=0, requests=(kind,), phases=(phase,)), texts, SEED)

    async def keep_busy(
        self,
        generators: Generators,
        plan: Plan,
        read: Callable[[], Awaitable[Reading]],
        worked: Callable[[Reading, Reading], bool],
    ) -> BusyTime[Reading]:
        """Runs the clients until the measured time is over, and longer while `worked(first, last)` sees no progress.

        Raises:
            BusyServerError: if the servers make no progress, or from `read`.
            GeneratorLostError: if a generator process dies.
        """
        record = Record(plan, self.clients)
        start_seconds = generators.start_seconds(plan)
        asking = asyncio.ensure_future(generators.carry_out(plan, start_seconds, None, record.add, users=self.clients))
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
                    raise BusyServerError("no request was answered in the measured time")
            generators.halt()
            await asking
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
        return BusyTime(record, first, last)
