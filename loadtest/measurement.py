"""Runs one plan: generates load, reads the server's metrics and calls a watcher.

The run ends early when its windows are stable, by the rule of NVIDIA's perf_analyzer: in three windows in a row,
throughput and a latency percentile deviate by at most 10 % from their means.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from loadtest.generator import Generators
from loadtest.plan import Plan
from loadtest.scenario import Objective
from loadtest.server_metrics import MetricsReader, ServerState
from loadtest.tally import Record, span


@dataclass(frozen=True, slots=True)
class Window:
    """Answered requests per second and the watched latency percentile of one window; None without answers."""

    requests_per_second: float
    latency_seconds: float | None


@dataclass(frozen=True, slots=True)
class StabilityRule:
    """When consecutive windows are stable.

    Attributes:
        alike: windows in a row that must agree.
        within: largest relative deviation from their mean.
        most: largest number of windows.
        percent: latency percentile.
    """

    alike: int = 3
    within: float = 0.1
    most: int = 10
    percent: float = 99.0

    def is_stable(self, windows: Sequence[Window]) -> bool:
        """Returns whether the last windows agree."""
        last = windows[-self.alike :]
        latencies = [window.latency_seconds for window in last if window.latency_seconds is not None]
        return (
            len(last) == len(latencies) == self.alike
            and self._agree([window.requests_per_second for window in last])
            and self._agree(latencies)
        )

    def _agree(self, values: Sequence[float]) -> bool:
        mean = sum(values) / len(values)
        return max(abs(value - mean) for value in values) <= self.within * mean


WATCH_SECONDS = 1.0


@dataclass(slots=True)
class Run:
    """A run, in progress or ended.

    Attributes:
        start_seconds: by the machine's monotonic clock.
        states: server metrics, each with its seconds from the start of the run.
        windows: ended windows of the only phase, if stability is asked for.
        stable: whether they agree; None if stability is not asked for.
    """

    record: Record
    start_seconds: float
    states: list[tuple[float, ServerState]] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    stable: bool | None = None

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
    metrics: MetricsReader,
    *,
    objective: Objective | None = None,
    users: int | None = None,
    rule: StabilityRule | None = None,
    watcher: Watcher = lambda _run: None,
    disturb: Disturbance = _nothing,
    may_be_lost: bool = False,
) -> Run:
    """Runs a plan and returns the run.

    `users` makes it a closed loop. `rule` ends it when the windows of the plan's only phase are stable. `disturb` runs
    concurrently with the load and must end by itself.

    Raises:
        GeneratorLostError: if a process dies and `may_be_lost` is false.
    """
    first_state = await metrics.read()
    run = Run(Record(plan, users), generators.start_seconds(plan), stable=None if rule is None else False)
    if first_state is not None:
        run.states.append((0.0, first_state))
    sending = generators.carry_out(
        plan, run.start_seconds, objective, run.record.add, users=users, may_be_lost=may_be_lost
    )
    sent = asyncio.ensure_future(sending)
    disturbing = asyncio.ensure_future(disturb(run))
    try:
        while not sent.done():
            await asyncio.wait((sent,), timeout=WATCH_SECONDS)
            await _look(run, metrics, rule, watcher)
            if run.stable:
                generators.halt()
        sent.result()
        await disturbing
    finally:
        disturbing.cancel()
        sent.cancel()
        await asyncio.gather(sent, disturbing, return_exceptions=True)
    return run


async def _look(run: Run, metrics: MetricsReader, rule: StabilityRule | None, watcher: Watcher) -> None:
    state = await metrics.read()
    if state is not None:
        run.states.append((run.now_seconds, state))
    if rule is not None and not run.stable:
        _close_windows(run, rule)
    watcher(run)


def _close_windows(run: Run, rule: StabilityRule) -> None:
    """Adds the next windows, in order, whose requests have all ended."""
    (phase,) = run.record.phases
    planned = run.record.planned()
    while not run.stable:
        numbers = run.record.slices_of(phase, [len(run.windows)])
        if not numbers:
            return
        begin_seconds, end_seconds = span([run.record.plan.slices[number] for number in numbers])
        tally = run.record.tally(numbers)
        expected = tally.sent if run.record.users is not None else sum(planned[number] for number in numbers)
        if run.now_seconds < end_seconds or tally.ended < expected:
            return
        elapsed_seconds = max(end_seconds, tally.last_seconds) - begin_seconds
        run.windows.append(Window(tally.ok / elapsed_seconds, tally.latency.percentile(rule.percent)))
        run.stable = rule.is_stable(run.windows)
