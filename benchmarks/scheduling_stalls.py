"""The cost and the benefit of a prefill token budget. A part of `dragoman bench scheduling`.

Half of an engine's rows run when a burst of sentences arrives for the other half. Measured: how long the running rows
stall, how long the burst waits, and the throughput of all sentences at once.
"""

import statistics
import time
from dataclasses import dataclass
from itertools import cycle

from benchmarks.harness.rounds import Progress, Spread, format_spread
from benchmarks.scheduling_parts import PartMeasure, ScheduledModel, SchedulingOptions, fill_in_turns, run_engines
from benchmarks.systems.engine import DECODER, WatchedEngine, raise_error, search_options
from loadtest.report_files import markdown_table
from serve.runtime.cpu import Sessions
from serve.scheduler.sequence import DecodingSequence, SequenceState

# Steps between two bursts.
CALM_STEPS = 8
# Target tokens of a burst's sequences.
BURST_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Burst:
    """One burst.

    Attributes:
        calm_ms: median time between two tokens of a running row before the burst.
        stall_ms: the longest time between two tokens of a running row while the burst joins.
        started_ms: until the whole burst has its first tokens.
        steps: number of steps in which it joins.
    """

    calm_ms: float
    stall_ms: float
    started_ms: float
    steps: int


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """One token budget, the maximum of source tokens that join between two steps; figures and bursts by round.

    Attributes:
        occupancy: share of slots taken while sequences wait, all sentences at once.
    """

    budget: int
    bursts: list[list[Burst]]
    occupancy: list[float]
    tokens_per_second: list[float]


def measure(model: ScheduledModel, options: SchedulingOptions, progress: Progress) -> list[BudgetResult]:
    """Measures all budgets in turns.

    Raises:
        ServiceError: if an engine fails.
    """
    sessions = model.sessions()

    def add_round(result: BudgetResult) -> None:
        engine = BurstyEngine(sessions, model, options.slots, result.budget)
        result.bursts.append([engine.burst() for _ in range(options.bursts)])
        with run_engines(sessions, options.slots, result.budget) as engines:
            started = time.perf_counter()
            ended = engines.translate(model.specs())
            took = time.perf_counter() - started
        result.occupancy.append(engines.occupancy)
        result.tokens_per_second.append(sum(len(sequence.best.target_ids) for sequence in ended) / took)

    results = [BudgetResult(budget, [], [], []) for budget in dict.fromkeys(options.budgets)]
    return fill_in_turns(results, options, progress, add_round)


class BurstyEngine:
    """An engine, stepped in the calling thread, with half of its rows always occupied."""

    def __init__(self, sessions: Sessions, model: ScheduledModel, slots: int, budget: int) -> None:
        self._engine = WatchedEngine(sessions, slots, budget)
        self._sources = cycle(sentence.source_ids for sentence in model.sentences)
        self._longest = sessions.manifest.max_target_tokens
        self._half = slots // 2
        self._ended_ns = 0
        for number in range(self._half):  # their ends are spread evenly over the steps
            self._submit_long(1 + number * self._longest // self._half)
        for _ in range(self._longest):
            self._step_ms()

    def burst(self) -> Burst:
        """Lets a burst fill the other half of the rows, and finish.

        Raises:
            ServiceError: if the engine fails.
        """
        calm = [self._step_ms() for _ in range(CALM_STEPS)]
        started = time.perf_counter()
        options = search_options(BURST_TOKENS, BURST_TOKENS)
        joining = [DecodingSequence(next(self._sources), options, None, raise_error) for _ in range(self._half)]
        self._engine.scheduler.submit(joining)
        stalls = [self._step_ms()]
        while any(sequence.state is SequenceState.WAITING for sequence in joining):
            stalls.append(self._step_ms())
        took = time.perf_counter() - started
        while any(sequence.state is not SequenceState.FINISHED for sequence in joining):
            self._step_ms()
        return Burst(statistics.median(calm), max(stalls), 1e3 * took, len(stalls))

    def _submit_long(self, target_tokens: int) -> None:
        def on_finish(sequence: DecodingSequence) -> None:
            raise_error(sequence)
            self._submit_long(self._longest)

        options = search_options(target_tokens, target_tokens)
        self._engine.scheduler.submit([DecodingSequence(next(self._sources), options, None, on_finish)])

    def _step_ms(self) -> float:
        """Makes a step; returns the time between the ends of two successive decoder runs."""
        spans = self._engine.stopwatch.spans
        spans.clear()
        self._engine.step()
        (ended_ns,) = (span.ended_ns for span in spans if span.name == DECODER)
        took_ms = (ended_ns - self._ended_ns) / 1e6
        self._ended_ns = ended_ns
        return took_ms


def table(results: dict[str, list[BudgetResult]]) -> str:
    """Returns the table of all models."""
    heading = ["model", "budget, tokens", "calm step, ms", "longest stall, ms: median (largest)"]
    heading += ["burst has its first tokens after, ms", "steps", "slots taken while something waits"]
    heading += ["all at once, tokens/s"]
    rows = []
    for name, budgets in results.items():
        for result in budgets:
            bursts = [burst for some in result.bursts for burst in some]
            stalls = Spread.of([burst.stall_ms for burst in bursts])
            base = None if result is budgets[0] else budgets[0].tokens_per_second
            rows.append(
                [
                    name,
                    str(result.budget),
                    f"{statistics.median(burst.calm_ms for burst in bursts):.1f}",
                    f"{stalls.median:.1f} ({stalls.high:.1f})",
                    f"{statistics.median(burst.started_ms for burst in bursts):.1f}",
                    f"{statistics.median(burst.steps for burst in bursts):.0f}",
                    f"{statistics.median(result.occupancy):.1%}",
                    format_spread(result.tokens_per_second, base),
                ]
            )
    return markdown_table(heading, rows)


PREFILL = PartMeasure(lambda options: options.rounds * len(set(options.budgets)), measure, table)
