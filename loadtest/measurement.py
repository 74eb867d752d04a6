"""Runs one plan: generates load, reads the server's metrics and calls a watcher.

The run ends early when its windows are stable, by the rule of NVIDIA's perf_analyzer: in three windows in a row,
throughput and a latency percentile deviate by at most 10 % from their means.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from loadtest.clients import OK
from loadtest.generator import REPORT_SECONDS, Generators
from loadtest.plan import Plan
from loadtest.samples import Samples, percentile
from loadtest.server_metrics import MetricsReader, ServerState

# So many windows in a row must agree, by this largest relative deviation from their mean. After the most windows, the
# run ends all the same.
ALIKE, WITHIN, MOST_WINDOWS = 3, 0.1, 10


class Window(NamedTuple):
    """Answered requests per second and the watched latency percentile of one window; NaN without answers."""

    requests_per_second: float
    latency_seconds: float


def are_stable(windows: Sequence[Window]) -> bool:
    """Returns whether the last windows agree."""
    last = np.array(windows[-ALIKE:])
    deviations = np.abs(last - last.mean(axis=0)) <= WITHIN * last.mean(axis=0)
    return len(windows) >= ALIKE and bool(deviations.all())


WATCH_SECONDS = 1.0


@dataclass(slots=True)
class Run:
    """A run, in progress or ended.

    Attributes:
        start_seconds: by the machine's monotonic clock.
        users: of a closed loop; None for an open loop.
        states: server metrics, each with its seconds from the start of the run.
        windows: ended windows of the only phase, if stability is asked for.
        stable: whether they agree; None if stability is not asked for.
        parts: the requests so far, as the processes have reported them.
    """

    plan: Plan
    start_seconds: float
    users: int | None = None
    states: list[tuple[float, ServerState]] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    stable: bool | None = None
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


async def _nothing(_run: Run) -> None:
    pass


async def measure(
    generators: Generators,
    plan: Plan,
    metrics: MetricsReader | None = None,
    *,
    users: int | None = None,
    stable_percent: float | None = None,
    watcher: Watcher = lambda _run: None,
    disturb: Disturbance = _nothing,
    may_be_lost: bool = False,
) -> Run:
    """Runs a plan and returns the run.

    `users` makes it a closed loop. With `stable_percent`, a latency percentile, the run ends when the windows of the
    plan's only phase are stable. `disturb` runs concurrently with the load and must end by itself.
    """
    first_state = None if metrics is None else await metrics.read()
    run = Run(plan, generators.start_seconds(plan), users, stable=None if stable_percent is None else False)
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
            if stable_percent is not None and not run.stable:
                _close_windows(run, stable_percent)
            if run.stable:
                generators.halt()
            watcher(run)
        await asyncio.gather(sent, disturbing)
    finally:
        disturbing.cancel()
        sent.cancel()
        await asyncio.gather(sent, disturbing, return_exceptions=True)
    return run


def _close_windows(run: Run, percent: float) -> None:
    """Adds the next windows, in order, whose requests have all ended."""
    (parts,) = run.plan.phases.values()
    for _, begin_seconds, end_seconds in parts[len(run.windows) :]:
        samples = run.samples.between(begin_seconds, end_seconds)
        expected = len(samples.begun) if run.users else run.plan.planned(begin_seconds, end_seconds)
        # Requests of the last REPORT_SECONDS may not be reported yet.
        if run.stable or run.now_seconds < end_seconds + REPORT_SECONDS or samples.outcomes.total() < expected:
            return
        elapsed_seconds = max(end_seconds, samples.last_seconds) - begin_seconds
        latency_seconds = percentile(samples.latency, percent) or math.nan
        run.windows.append(Window(samples.outcomes[OK] / elapsed_seconds, latency_seconds))
        run.stable = are_stable(run.windows)
