"""Runs of one scenario over open connections, the capacity search, and the live view.

The search for the highest rate that meets an objective doubles the rate, then bisects. The live view is a table on a
terminal, elsewhere a line every 10 seconds. It goes to standard error, so that standard output holds only results.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from loadtest.clients import OK, Targets
from loadtest.generator import Generators
from loadtest.measurement import Run, StabilityRule, measure
from loadtest.plan import Plan, draw_plan
from loadtest.results import CapacityResult, CurvePoint, RunResult, results_of
from loadtest.scenario import PoissonPhase, Scenario, ScenarioError
from loadtest.server_metrics import MetricsReader
from loadtest.tables import milliseconds
from loadtest.tally import Tally

# Shares of the capacity at which goodput is measured.
CURVE_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0)
# A disturbed machine can make a good rate fail, but never a bad rate succeed. So a failed trial is repeated.
TRIES = 2
MOST_DOUBLINGS = 24
# A trial at a lower rate has too few requests.
MOST_HALVINGS = 6

# Returns whether a rate meets the objective.
Trial = Callable[[float], Awaitable[bool]]


async def find_capacity(meets: Trial, first_rate: float, tolerance: float) -> float | None:
    """Searches the highest rate that meets an objective; returns None if no tried rate does.

    `meets` may fail by chance but not succeed by chance. The search ends when the lowest failed rate is at most the
    share `tolerance` above the highest rate that met the objective.
    """
    low, high = await _bracket(meets, first_rate)
    if low is None or high is None:
        return low
    while high > low * (1 + tolerance):
        # Geometric mean, because the tolerance is relative.
        middle = (low * high) ** 0.5
        if await _try(meets, middle):
            low = middle
        else:
            high = middle
    return low


async def _bracket(meets: Trial, first_rate: float) -> tuple[float | None, float | None]:
    """Returns a rate that meets the objective and a higher one that does not; None for a rate that was not found."""
    rate = first_rate
    if await _try(meets, rate):
        for _ in range(MOST_DOUBLINGS):
            if not await _try(meets, 2 * rate):
                return rate, 2 * rate
            rate *= 2
        return rate, None
    for _ in range(MOST_HALVINGS):
        if await _try(meets, rate / 2):
            return rate / 2, rate
        rate /= 2
    return None, rate


async def _try(meets: Trial, rate: float) -> bool:
    for _ in range(TRIES):
        if await meets(rate):
            return True
    return False


def curve_rates(capacity: float) -> list[float]:
    """Returns rates from 0.1 to 2 times a capacity."""
    return [share * capacity for share in CURVE_SHARES]


LINE_SECONDS = 10.0
# The view shows percentiles of the last slices, not of the whole run.
RECENT_SLICES = 5
PERCENTS = (50, 90, 99, 99.9)


class LiveView:
    """Shows the progress of runs."""

    def __init__(self, console: Console, live: Live | None) -> None:
        self._console = console
        self._live = live
        self._title = ""
        self._next_line_seconds = LINE_SECONDS

    @classmethod
    @contextmanager
    def open(cls, console: Console) -> Iterator[Self]:
        """Shows runs until the block ends."""
        if not console.is_terminal:
            yield cls(console, None)
            return
        with Live(console=console, auto_refresh=False, transient=True) as live:
            yield cls(console, live)

    def begin(self, title: str) -> None:
        """Sets the title of the next run."""
        self._title = title
        self._next_line_seconds = LINE_SECONDS

    def show(self, run: Run) -> None:
        """Shows the current state of a run."""
        if self._live is not None:
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
    record = run.record
    past = [number for number, each in enumerate(record.plan.slices) if each.begin_seconds <= run.now_seconds]
    recent = record.tally(past[-RECENT_SLICES:])
    begin_seconds = record.plan.slices[past[-RECENT_SLICES:][0]].begin_seconds if past else 0.0
    shown = {
        "time": f"{max(0.0, run.now_seconds):.0f} of {record.plan.duration_seconds:.0f} s",
        "rate": f"{recent.sent / max(1e-9, run.now_seconds - begin_seconds):.1f}/s",
        "in flight": str(record.in_flight),
        "ok": str(record.outcomes[OK]),
        **{f"p{percent}, ms": milliseconds(recent.latency.percentile(percent)) for percent in PERCENTS},
        **{f"failed: {name}": str(count) for name, count in record.failed.items()},
    }
    if run.states:
        _, state = run.states[-1]
        shown |= {"server's rows": f"{state.rows} of {state.slots}", "server's queue": str(state.waiting)}
    return shown


TRIAL_WARM_UP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a session sends its load.

    Attributes:
        cpus: of the generator processes; empty for any.
        users: number of users in a closed loop; None for an open loop.
        until_stable: whether the only phase is repeated until its windows agree.
    """

    targets: Targets
    processes: int
    cpus: Sequence[int]
    users: int | None = None
    until_stable: bool = False


@dataclass(frozen=True, slots=True)
class LoadSession:
    """Runs of one scenario over open connections."""

    options: SessionOptions
    scenario: Scenario
    sentences: Sequence[str]
    generators: Generators
    metrics: MetricsReader
    view: LiveView

    @classmethod
    @asynccontextmanager
    async def open(
        cls, options: SessionOptions, scenario: Scenario, sentences: Sequence[str], view: LiveView
    ) -> AsyncIterator[Self]:
        """Opens the connections and starts the generators, and stops them when the block ends."""
        protocols = {kind.protocol for kind in scenario.requests}
        known = scenario.known_protocols
        async with (
            MetricsReader.open(options.targets) as metrics,
            Generators.run(options.processes, options.targets, protocols, options.cpus, known) as generators,
        ):
            yield cls(options, scenario, sentences, generators, metrics, view)

    async def run(self, title: str) -> list[RunResult]:
        """Runs the scenario, once or until its windows agree, and returns the result of each phase.

        Raises:
            ScenarioError: if windows must agree and there are several phases.
            GeneratorLostError: if a generator dies.
        """
        scenario = self.scenario
        rule = StabilityRule(percent=scenario.objective.percentile) if self.options.until_stable else None
        if rule is not None and len(scenario.phases) > 1:
            raise ScenarioError(f"until-stable: expected one phase, got {len(scenario.phases)}")
        plan = draw_plan(scenario, self.sentences, scenario.seed, 1 if rule is None else rule.most)
        return results_of(await self._measure(title, plan, rule), scenario.max_lag_seconds)

    async def find_capacity(
        self, title: str, first_rate: float, trial_seconds: float, tolerance: float, *, curve: bool = True
    ) -> CapacityResult:
        """Searches the highest rate that meets the objective, then measures rates around it, unless `curve` is false.

        Raises:
            GeneratorLostError: if a generator dies.
        """
        objective = self.scenario.objective
        trials: list[tuple[float, CurvePoint]] = []

        async def meets(rate: float) -> bool:
            tally, point = await self._try(f"{title}, {rate:.1f}/s", rate, trial_seconds, len(trials))
            trials.append((rate, point))
            return point.void is None and tally.meets(objective)

        found = await find_capacity(meets, first_rate, tolerance)
        points = []
        for number, rate in enumerate(curve_rates(found) if curve and found is not None else ()):
            points.append((await self._try(f"{title}, {rate:.1f}/s", rate, trial_seconds, len(trials) + number))[1])
        higher = [point.void for rate, point in trials if found is None or rate > found]
        void = higher[-1] if higher and None not in higher else None
        tried = [point for _, point in trials]
        return CapacityResult(str(objective), objective.latency_seconds, found, tried, points, void)

    async def _try(self, title: str, rate: float, seconds: float, number: int) -> tuple[Tally, CurvePoint]:
        """Runs one trial with a Poisson load."""
        phase = PoissonPhase(name="trial", rate=rate, duration_seconds=seconds)
        scenario = self.scenario.model_copy(update={"phases": (phase,), "warm_up_seconds": TRIAL_WARM_UP_SECONDS})
        run = await self._measure(title, draw_plan(scenario, self.sentences, scenario.seed + number))
        (result,) = results_of(run, scenario.max_lag_seconds)
        tally = run.record.tally(run.record.slices_of(phase.name))
        return tally, CurvePoint(
            result.offered_per_second,
            result.requests_per_second,
            result.goodput_per_second,
            result.all.latency_seconds,
            tally.failed_share,
            result.void,
        )

    async def _measure(self, title: str, plan: Plan, rule: StabilityRule | None = None) -> Run:
        self.view.begin(title)
        return await measure(
            self.generators,
            plan,
            self.metrics,
            objective=self.scenario.objective,
            users=self.options.users,
            rule=rule,
            watcher=self.view.show,
        )
