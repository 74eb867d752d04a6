"""Connections to a server, generators and whoever watches, kept for several runs of one scenario.

Called by the commands, which know options and formats.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from loadtest.capacity import curve_rates, find_capacity
from loadtest.clients import Targets
from loadtest.document import CapacityResult, CurvePoint
from loadtest.generators import Generators
from loadtest.live_view import LiveView
from loadtest.measurement import measure
from loadtest.objective import Objective
from loadtest.plan import draw_plan
from loadtest.results import RunResult, results_of, why_void
from loadtest.scenario import PoissonPhase, Scenario, ScenarioError
from loadtest.server_metrics import MetricsReader
from loadtest.stability import StabilityRule
from loadtest.tally import Tally

TRIAL_WARM_UP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How is measured.

    Attributes:
        targets: where the server is.
        processes: that generate load.
        cpus: on which they may run; empty: on any.
        objective: which answers are good ones.
        max_lag_seconds: of the generator.
        seed: of all drawing.
        users: in a closed loop, how many; None: open loop.
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
        """Starts what is needed, and stops it when the block ends."""
        protocols = {kind.protocol for kind in scenario.requests}
        async with (
            MetricsReader.open(options.targets) as metrics,
            Generators.run(options.processes, options.targets, protocols, options.cpus) as generators,
        ):
            yield cls(options, scenario, sentences, generators=generators, metrics=metrics, view=view)

    async def run(self, title: str) -> list[RunResult]:
        """Runs the scenario once, or until its windows agree, and returns the result of each phase.

        Raises:
            ScenarioError: if windows are to agree and there are several phases.
            GeneratorLostError: if a generator dies.
        """
        options = self._options
        rule = StabilityRule(percent=options.objective.percentile) if options.until_stable else None
        if rule is not None and len(self._scenario.phases) > 1:
            raise ScenarioError("until-stable: expected a single phase")
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
        """Searches the highest rate that meets the objective, then measures rates around it.

        Args:
            title: shown meanwhile.
            first_rate: where the search begins.
            trial_seconds: length of the measured part of a trial.
            tolerance: how exactly is searched.
            curve: whether rates around it are measured.

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
        """Returns what became of a Poisson load of a rate."""
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
