"""One run from its start to its last answer: generators send, the server's metrics are read, somebody may watch.

The run ends early once its windows are stable, if that is asked for. Composes the modules around it; called by the
commands.

When a measurement may end: once the last windows say the same.

The rule is that of NVIDIA's perf_analyzer: three windows in a row whose throughput and whose percentile of the latency
lie within a tenth of each other. Knows no clock.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from loadtest.generator import Generators
from loadtest.plan import Plan
from loadtest.server_metrics import MetricsReader, ServerState
from loadtest.tally import Bound, Record, span


@dataclass(frozen=True, slots=True)
class Window:
    """What one window found.

    Attributes:
        requests_per_second: that were answered.
        latency_seconds: at the percentile that is watched; None: nothing was answered.
    """

    requests_per_second: float
    latency_seconds: float | None


@dataclass(frozen=True, slots=True)
class StabilityRule:
    """Which windows say the same.

    Attributes:
        alike: so many in a row have to.
        within: how far they may lie from their mean, as a share of it.
        most: windows that are tried.
        percent: percentile of the latency that is watched.
    """

    alike: int = 3
    within: float = 0.1
    most: int = 10
    percent: float = 99.0

    def is_stable(self, windows: Sequence[Window]) -> bool:
        """Tells whether the last windows say the same."""
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
NO_BOUND = Bound()


@dataclass(slots=True)
class Run:
    """A run that goes on, or that has ended.

    Attributes:
        record: what was sent and what became of it.
        start_seconds: of the run, by the machine's monotonic clock.
        states: what the server said, with the seconds from the start of the run.
        windows: of the only phase, those that have ended; only if stability is asked for.
        stable: whether they say the same; None: it is not asked for.
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


# Is called every second of a run, and once when it has ended.
Watcher = Callable[[Run], None]
# Does something to the server or to the generators during a run.
Disturbance = Callable[[Run], Awaitable[None]]


async def _nothing(_run: Run) -> None:
    pass


async def measure(
    generators: Generators,
    plan: Plan,
    metrics: MetricsReader,
    *,
    bound: Bound = NO_BOUND,
    users: int | None = None,
    rule: StabilityRule | None = None,
    watcher: Watcher = lambda _run: None,
    disturb: Disturbance = _nothing,
    may_be_lost: bool = False,
) -> Run:
    """Carries out a plan.

    Args:
        generators: send the requests.
        plan: which and when.
        metrics: the server's.
        bound: which answers are good ones.
        users: in a closed loop, how many there are; None: open loop.
        rule: when the windows of the plan's only phase are stable; None: all are run.
        watcher: is shown the run.
        disturb: goes on beside the run, whose end does not end it: it has to come to its own.
        may_be_lost: whether processes that generate load may die.

    Raises:
        GeneratorLostError: if one dies that may not.
    """
    first_state = await metrics.read()
    run = Run(Record(plan, users), generators.start_seconds(plan), stable=None if rule is None else False)
    if first_state is not None:
        run.states.append((0.0, first_state))
    sending = generators.carry_out(plan, run.start_seconds, bound, run.record.add, users=users, may_be_lost=may_be_lost)
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
    """Looks at the windows whose requests have all ended, as far as they follow those that were looked at before."""
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
