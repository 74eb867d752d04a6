"""Runs of one scenario over open connections, the capacity search, and the live view.

The search for the highest rate that meets an objective doubles the rate, then bisects. The live view is a table on a
terminal, elsewhere a line every 10 seconds. It goes to standard error, so that standard output holds only results.
"""

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from dragoman.loadtest.clients import OK, Targets
from dragoman.loadtest.generator import Generators
from dragoman.loadtest.measurement import Run, measure
from dragoman.loadtest.plan import LoadPlan, draw_plan
from dragoman.loadtest.results import CapacityResult, RunResult, result_of
from dragoman.loadtest.samples import percentile
from dragoman.loadtest.scenario import PoissonPhase, Scenario
from dragoman.loadtest.server_metrics import MetricsReader
from dragoman.loadtest.tables import milliseconds

# Shares of the capacity at which goodput is measured.
CURVE_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
# Bounds of the search as multiples of its first rate. A trial at a lower rate has too few requests.
LOWEST, HIGHEST = 1 / 64, 2.0**24

# Returns whether a rate meets the objective.
Trial = Callable[[float], Awaitable[bool]]


async def find_capacity(meets: Trial, first_rate: float, tolerance: float) -> float | None:
    """Searches the highest rate that meets an objective; returns None if no tried rate does.

    `meets` may fail by chance but not succeed by chance: a disturbed machine can make a good rate fail. So a failed
    trial is repeated. The search ends when the lowest failed rate is at most the share `tolerance` above the highest
    rate that met the objective.
    """
    low, high, rate = 0.0, math.inf, first_rate
    while low * (1 + tolerance) < high and LOWEST <= rate / first_rate <= HIGHEST:
        if await meets(rate) or await meets(rate):
            low = rate
        else:
            high = rate
        if not low:
            rate = high / 2
        elif high == math.inf:
            rate = 2 * low
        else:
            # Geometric mean, because the tolerance is relative.
            rate = math.sqrt(low * high)
    return low or None


LINE_SECONDS = 10.0
# The view shows percentiles of the last seconds, not of the whole run.
RECENT_SECONDS = 5.0
PERCENTS = (50, 90, 99, 99.9)


class LiveView:
    """Shows the progress of runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._title = ""
        self._next_line_seconds = LINE_SECONDS

    @classmethod
    @contextmanager
    def open(cls, console: Console) -> Iterator[Self]:
        """Shows runs until the block ends."""
        view = cls(console)
        with view._live:
            yield view

    def begin(self, title: str) -> None:
        """Sets the title of the next run."""
        self._title = title
        self._next_line_seconds = LINE_SECONDS

    def show(self, run: Run) -> None:
        """Shows the current state of a run."""
        if self._console.is_terminal:
            table = Table(title=self._title, title_justify="left", show_header=False)
            for row in figures(run).items():
                table.add_row(*row)
            self._live.update(table, refresh=True)
        elif run.now_seconds >= self._next_line_seconds:
            self._next_line_seconds += LINE_SECONDS
            line = ", ".join(f"{name} {value}" for name, value in figures(run).items())
            self._console.print(f"{self._title}: {line}", highlight=False, soft_wrap=True, markup=False)


def figures(run: Run) -> dict[str, str]:
    """Returns the displayed values of a run, by name."""
    samples, now_seconds = run.samples, max(1e-9, run.now_seconds)
    recent = samples.between(now_seconds - RECENT_SECONDS)
    latency = recent.latency
    shown = {
        "time": f"{now_seconds:.0f} of {run.plan.duration_seconds:.0f} s",
        "rate": f"{len(recent.begun) / min(now_seconds, RECENT_SECONDS):.1f}/s",
        "in flight": str(samples.in_flight),
        "ok": str(samples.outcomes[OK]),
        **{f"p{percent}, ms": milliseconds(percentile(latency, percent)) for percent in PERCENTS},
        **{f"failed: {name}": str(count) for name, count in samples.errors.items()},
    }
    if run.states:
        _, state = run.states[-1]
        shown |= {"server's rows": f"{state.rows} of {state.slots}", "server's queue": str(state.waiting)}
    return shown


TRIAL_WARM_UP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class LoadSession:
    """Runs of one scenario over open connections; `users` of a closed loop, or None for an open loop."""

    scenario: Scenario
    sentences: Sequence[str]
    generators: Generators
    metrics: MetricsReader
    view: LiveView
    users: int | None

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        scenario: Scenario,
        sentences: Sequence[str],
        targets: Targets,
        view: LiveView,
        *,
        processes: int,
        cpus: Sequence[int],
        users: int | None = None,
    ) -> AsyncIterator[Self]:
        """Opens the connections and starts the generators, and stops them when the block ends."""
        protocols = {kind.protocol for kind in scenario.requests}
        async with (
            MetricsReader.open(targets) as metrics,
            Generators.run(processes, targets, protocols, cpus, scenario.known_protocols) as generators,
        ):
            yield cls(scenario, sentences, generators, metrics, view, users)

    async def run(self, title: str) -> list[RunResult]:
        """Runs the scenario, and returns the result of each phase."""
        return await self._measure(title, draw_plan(self.scenario, self.sentences, self.scenario.seed))

    async def find_capacity(self, title: str) -> CapacityResult:
        """Searches the capacity from the rate of the first phase on, and measures rates around it."""
        scenario, tried = self.scenario, list[tuple[float, RunResult]]()

        async def measure_rate(rate: float) -> RunResult:
            phase = PoissonPhase(name=f"{title}, {rate:.1f}/s", rate=rate, duration_seconds=scenario.trial_seconds)
            trial = scenario.model_copy(update={"phases": (phase,), "warm_up_seconds": TRIAL_WARM_UP_SECONDS})
            (result,) = await self._measure(phase.name, draw_plan(trial, self.sentences, scenario.seed + len(tried)))
            tried.append((rate, result))
            return result

        async def meets(rate: float) -> bool:
            result = await measure_rate(rate)
            return result.void is None and result.meets_objective

        found = await find_capacity(meets, scenario.phases[0].rate, scenario.tolerance)
        trials = [result for _, result in tried]
        higher = [result.void for rate, result in tried if rate > (found or 0.0)]
        void = higher[-1] if higher and None not in higher else None
        rates = [share * found for share in CURVE_SHARES] if found is not None else []
        points = [await measure_rate(rate) for rate in rates]
        objective = scenario.objective
        return CapacityResult(str(objective), objective.latency_seconds, found, trials, points, void)

    async def _measure(self, title: str, plan: LoadPlan) -> list[RunResult]:
        self.view.begin(title)
        run = await measure(self.generators, plan, self.metrics, users=self.users, watcher=self.view.show)
        objective, max_lag_seconds = self.scenario.objective, self.scenario.max_lag_seconds
        return [result_of(run, part, objective, max_lag_seconds) for part in plan.measured]
