"""Runs one plan: generates load, reads the server's metrics and calls a watcher."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from dragoman.loadtest.generator import Generators
from dragoman.loadtest.plan import LoadPlan
from dragoman.loadtest.samples import Samples
from dragoman.loadtest.server_metrics import MetricsReader, ServerState

WATCH_SECONDS = 1.0


@dataclass(slots=True)
class Run:
    """A run, in progress or ended.

    Attributes:
        start_seconds: by the machine's monotonic clock.
        users: of a closed loop; None for an open loop.
        states: server metrics, each with its seconds from the start of the run.
        parts: the requests so far, as the processes have reported them.
    """

    plan: LoadPlan
    start_seconds: float
    users: int | None = None
    states: list[tuple[float, ServerState]] = field(default_factory=list)
    parts: list[Samples] = field(default_factory=list)

    @property
    def samples(self) -> Samples:
        """The requests so far, including the warm-up."""
        if len(self.parts) != 1:
            self.parts[:] = [Samples.join(self.parts)]
        return self.parts[0]

    @property
    def now_seconds(self) -> float:
        """Seconds from the start of the run."""
        return time.monotonic() - self.start_seconds


# Called every second of a run, and once after it.
Watcher = Callable[[Run], None]
# Disturbs the server or the generators during a run.
Disturbance = Callable[[Run], Awaitable[None]]


async def stall(process_id: int, seconds: float) -> None:
    """Stops a process (SIGSTOP) for a time; it runs again even if the stall is canceled."""
    os.kill(process_id, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        os.kill(process_id, signal.SIGCONT)


async def nothing(*_: object) -> None:
    """Disturbs nothing."""


async def measure(
    generators: Generators,
    plan: LoadPlan,
    metrics: MetricsReader | None = None,
    *,
    users: int | None = None,
    watcher: Watcher = lambda _run: None,
    disturb: Disturbance = nothing,
    may_be_lost: bool = False,
) -> Run:
    """Runs a plan, with `users` as a closed loop; `disturb` runs concurrently and must end by itself."""
    first_state = None if metrics is None else await metrics.read()
    run = Run(plan, generators.start_seconds(plan), users)
    if first_state is not None:
        run.states.append((0.0, first_state))
    sending = generators.carry_out(plan, run.start_seconds, run.parts.append, users=users, may_be_lost=may_be_lost)
    sent, disturbing = asyncio.ensure_future(sending), asyncio.ensure_future(disturb(run))
    try:
        while not sent.done():
            await asyncio.wait((sent,), timeout=WATCH_SECONDS)
            if disturbing.done():
                disturbing.result()
            if state := None if metrics is None else await metrics.read():
                run.states.append((run.now_seconds, state))
            watcher(run)
        await asyncio.gather(sent, disturbing)
    finally:
        disturbing.cancel()
        sent.cancel()
        await asyncio.gather(sent, disturbing, return_exceptions=True)
    return run
