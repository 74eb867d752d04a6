"""Closed-loop clients that keep servers busy: each sends its next request when it has its answer.

Measures the throughput at a given number of clients, not latency under load. The server's counters are read at both
ends of the measured time, while the clients go on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from loadtest.generator import Generators
from loadtest.measurement import Run, measure
from loadtest.plan import Plan, draw_plan
from loadtest.samples import Samples
from loadtest.scenario import ConstantPhase, RequestKind, Scenario
from loadtest.server_metrics import MetricsReader, ServerState

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

    samples: Samples
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
        readings: list[Reading] = []

        async def watch(run: Run) -> None:
            await asyncio.sleep(self.warm_up_seconds - run.now_seconds)
            readings.append(await read())
            while len(readings) == 1 or not worked(readings[0], readings[-1]):
                if run.now_seconds > LONGEST_SECONDS:
                    raise BusyServerError("no request was answered in the measured time")
                await asyncio.sleep(self.seconds)
                readings.append(await read())
            generators.halt()

        run = await measure(generators, plan, users=self.clients, disturb=watch)
        return BusyTime(run.samples, readings[0], readings[-1])
