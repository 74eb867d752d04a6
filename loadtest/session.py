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
from loadtest.objective import Objective
from loadtest.plan import draw_plan
from loadtest.results import CapacityResult, CurvePoint, RunResult, results_of, why_void
from loadtest.scenario import PoissonPhase, Scenario, ScenarioError
from loadtest.server_metrics import MetricsReader
from loadtest.tally import Tally
from loadtest.terminal_report import milliseconds

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
            self._live.update(_table(self._title, run), refresh=True)
        elif run.now_seconds >= self._next_line_seconds:
            self._next_line_seconds += LINE_SECONDS
            self._console.print(_line(self._title, run), highlight=False, soft_wrap=True)


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
    }
    for percent in PERCENTS:
        seconds = recent.latency.percentile(percent)
        shown[f"p{percent}"] = "-" if seconds is None else milliseconds(seconds)
    shown |= {f"failed: {name}": str(count) for name, count in sorted(record.outcomes.items()) if name != OK}
    if run.states:
        _, state = run.states[-1]
        shown |= {"server's rows": f"{state.rows} of {state.slots}", "server's queue": str(state.waiting)}
    return shown


def _table(title: str, run: Run) -> Table:
    table = Table(title=title, title_justify="left", show_header=False)
    for name, value in figures(run).items():
        table.add_row(name, value)
    return table


def _line(title: str, run: Run) -> str:
    return f"{title}: " + ", ".join(f"{name} {value}" for name, value in figures(run).items())


TRIAL_WARM_UP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """Options of a session.

    Attributes:
        cpus: of the generator processes; empty for any.
        max_lag_seconds: a run is void if the p99 of its lag exceeds this.
        users: number of users in a closed loop; None for an open loop.
        until_stable: whether the only phase is repeated until its windows agree.
    """

    targets: Targets
    processes: int
    cpus: Sequence[int]
    objective: Objective
    max_lag_seconds: float
    seed: int
    users: int | None = None
    until_stable: bool = False


class LoadSession:
    """Runs of one scenario."""

    def __init__(
        self,
        options: SessionOptions,
        scenario: Scenario,
        sentences: Sequence[str],
        *,
        generators: Generators,
        metrics: MetricsReader,
        view: LiveView,
    ) -> None:
        self._options = options
        self._scenario = scenario
        self._sentences = sentences
        self._generators = generators
        self._metrics = metrics
        self._view = view

    @classmethod
    @asynccontextmanager
    async def open(
        cls, options: SessionOptions, scenario: Scenario, sentences: Sequence[str], view: LiveView
    ) -> AsyncIterator[Self]:
        """Opens the connections and starts the generators, and stops them when the block ends."""
        protocols = {kind.protocol for kind in scenario.requests}
        async with (
            MetricsReader.open(options.targets) as metrics,
            Generators.run(options.processes, options.targets, protocols, options.cpus) as generators,
        ):
            yield cls(options, scenario, sentences, generators=generators, metrics=metrics, view=view)

    async def run(self, title: str) -> list[RunResult]:
        """Runs the scenario, once or until its windows agree, and returns the result of each phase.

        Raises:
            ScenarioError: if windows must agree and there are several phases.
            GeneratorLostError: if a generator dies.
        """
        options = self._options
        rule = StabilityRule(percent=options.objective.percentile) if options.until_stable else None
        if rule is not None and len(self._scenario.phases) > 1:
            raise ScenarioError(f"until-stable: expected one phase, got {len(self._scenario.phases)}")
        self._view.begin(title)
        run = await measure(
            self._generators,
            draw_plan(self._scenario, self._sentences, options.seed, 1 if rule is None else rule.most),
            self._metrics,
            bound=options.objective.bound,
            users=options.users,
            rule=rule,
            watcher=self._view.show,
        )
        return results_of(run, options.max_lag_seconds)

    async def find_capacity(
        self, title: str, first_rate: float, trial_seconds: float, tolerance: float, *, curve: bool = True
    ) -> CapacityResult:
        """Searches the highest rate that meets the objective, then measures rates around it, unless `curve` is false.

        Raises:
            GeneratorLostError: if a generator dies.
        """
        trials: list[tuple[float, CurvePoint]] = []

        async def meets(rate: float) -> bool:
            tally, point = await self._try(f"{title}, {rate:.1f}/s", rate, trial_seconds, len(trials))
            trials.append((rate, point))
            return point.void is None and self._options.objective.is_met(tally)

        found = await find_capacity(meets, first_rate, tolerance)
        points = []
        for number, rate in enumerate(curve_rates(found) if curve and found is not None else ()):
            points.append((await self._try(f"{title}, {rate:.1f}/s", rate, trial_seconds, len(trials) + number))[1])
        objective = self._options.objective
        tried = [point for _, point in trials]
        higher = [point.void for rate, point in trials if found is None or rate > found]
        void = higher[-1] if higher and None not in higher else None
        return CapacityResult(str(objective), objective.latency_seconds, found, tried, points, void)

    async def _try(self, title: str, rate: float, seconds: float, number: int) -> tuple[Tally, CurvePoint]:
        """Runs one trial with a Poisson load."""
        phase = PoissonPhase(name="trial", arrivals="poisson", rate=rate, duration_seconds=seconds)
        scenario = self._scenario.model_copy(update={"phases": (phase,), "warm_up_seconds": TRIAL_WARM_UP_SECONDS})
        plan = draw_plan(scenario, self._sentences, self._options.seed + number)
        self._view.begin(title)
        run = await measure(
            self._generators, plan, self._metrics, bound=self._options.objective.bound, watcher=self._view.show
        )
        numbers = run.record.slices_of(phase.name)
        tally = run.record.tally(numbers)
        planned = run.record.planned()
        elapsed_seconds = max(seconds, tally.last_seconds - TRIAL_WARM_UP_SECONDS)
        point = CurvePoint(
            sum(planned[each] for each in numbers) / seconds,
            tally.ok / elapsed_seconds,
            tally.good / elapsed_seconds,
            tally.latency.percentiles(),
            tally.failed_share,
            why_void(tally.lag, self._options.max_lag_seconds),
        )
        return tally, point
