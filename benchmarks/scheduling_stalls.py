"""What a prefill token budget costs and gives. A part of `dragoman bench scheduling`.

Half of the rows of an engine are running when a burst of sentences comes for the other half: how long do they stand
still, and how long does the burst wait? And how fast are all sentences at once?

A model as the parts of `dragoman bench scheduling` measure it: a bundle, sentences, and how they are searched.
"""

import statistics
import time
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from prometheus_client import CollectorRegistry

from benchmarks.harness.rounds import Progress, Spread, format_spread
from benchmarks.scheduling_options import SchedulingOptions
from benchmarks.systems.engine import DECODER, LiveEngines, Stopwatch, WatchedEngine, WatchedScheduler, occupancy
from benchmarks.systems.translating import SourceSentence
from loadtest.report_files import markdown_table
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import Manifest
from serve.observability.metrics import Metrics
from serve.runtime.cpu import Sessions
from serve.scheduler.sequence import DecodingSequence, SequenceState
from serve.search.options import SearchOptions
from serve.system import available_cpus

# Source ids and how to search.
Wish = tuple[tuple[int, ...], SearchOptions]


@dataclass(frozen=True, slots=True)
class ScheduledModel:
    """A model.

    Attributes:
        name: in tables.
        folder: its bundle.
        sentences: that it translates.
        sentences_file: where other processes read them.
    """

    name: str
    folder: Path
    sentences: list[SourceSentence]
    sentences_file: Path

    @property
    def manifest(self) -> Manifest:
        """The manifest of the bundle."""
        return Bundle.open(self.folder).manifest

    def sessions(self, threads: int) -> Sessions:
        """Opens the bundle."""
        return Sessions.load(Bundle.open(self.folder), threads)

    def specs(self, beam_size: int = 1) -> list[Wish]:
        """Returns all sentences, to be searched with a beam."""
        return [(sentence.source_ids, search(*sentence.limits, beam_size)) for sentence in self.sentences]

    def made_up(self, source_tokens: int, target_tokens: int) -> Wish:
        """Returns a source of this length whose translation gets exactly that length."""
        words = [token for sentence in self.sentences for token in sentence.source_ids[:-1]]
        body = (words * source_tokens)[: source_tokens - 1]
        return (*body, self.manifest.eos_id), search(target_tokens, target_tokens)


def search(shortest: int, longest: int, beam_size: int = 1) -> SearchOptions:
    """Returns options for a translation between two lengths."""
    return SearchOptions(min_target_tokens=shortest, max_target_tokens=longest, beam_size=beam_size)


# Between two bursts: steps of rows that nobody joins.
CALM_STEPS = 8
# Target tokens of the sequences of a burst.
BURST_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Burst:
    """What a burst met and did.

    Attributes:
        calm_ms: between two tokens of a running row before it, the median.
        stall_ms: between two tokens of a running row while it joined, the longest.
        started_ms: until all of it had its first token.
        steps: in which it joined.
    """

    calm_ms: float
    stall_ms: float
    started_ms: float
    steps: int


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """One token budget.

    Attributes:
        budget: source tokens that may join between two steps.
        bursts: round by round.
        occupancy: share of the slots that are taken while something waits, all sentences at once, round by round.
        tokens_per_second: the same.
    """

    budget: int
    bursts: list[list[Burst]]
    occupancy: list[float]
    tokens_per_second: list[float]


def steps(options: SchedulingOptions) -> int:
    """Returns how many steps `measure` tells a progress bar."""
    return options.rounds * len(options.budgets)


def measure(model: ScheduledModel, options: SchedulingOptions, progress: Progress) -> list[BudgetResult]:
    """Measures all budgets in turns.

    Raises:
        ServiceError: if an engine fails.
    """
    sessions = model.sessions(threads=1)
    results = [BudgetResult(budget, [], [], []) for budget in dict.fromkeys(options.budgets)]
    for _ in range(options.rounds):
        for result in results:
            engine = BurstyEngine(sessions, model, options.slots, result.budget)
            result.bursts.append([engine.burst() for _ in range(options.bursts)])
            _translate_all(sessions, model, options.slots, result)
            progress.update()
    return results


def _translate_all(sessions: Sessions, model: ScheduledModel, slots: int, result: BudgetResult) -> None:
    with LiveEngines.run(
        sessions, engines=available_cpus(), slots=slots, prefill_token_budget=result.budget
    ) as engines:
        started = time.perf_counter()
        ended = engines.translate(model.specs())
        took = time.perf_counter() - started
    steps = [step for runtime in engines.runtimes for step in runtime.steps]
    result.occupancy.append(occupancy(steps, slots))
    result.tokens_per_second.append(sum(len(sequence.best.target_ids) for sequence in ended) / took)


class BurstyEngine:
    """An engine, stepped in the calling thread, half of whose rows are taken all the time."""

    def __init__(self, sessions: Sessions, model: ScheduledModel, slots: int, budget: int) -> None:
        manifest = sessions.manifest
        metrics = Metrics(CollectorRegistry(), manifest.name)
        self._stopwatch = Stopwatch()
        self._scheduler = WatchedScheduler(slots, slots, budget, metrics, self._stopwatch)
        self._engine = WatchedEngine(sessions, slots, self._scheduler, metrics, self._stopwatch)
        self._sources = cycle(sentence.source_ids for sentence in model.sentences)
        self._longest = manifest.max_target_tokens
        self._half = slots // 2
        self._ended_ns = 0
        for number in range(self._half):  # they end at different steps, evenly spread
            self._submit_long(1 + number * self._longest // self._half)
        for _ in range(self._longest):
            self._step_ms()

    def burst(self) -> Burst:
        """Lets a burst join that fills the other half, and end again.

        Raises:
            ServiceError: if the engine fails.
        """
        calm = [self._step_ms() for _ in range(CALM_STEPS)]
        started = time.perf_counter()
        options = search(BURST_TOKENS, BURST_TOKENS)
        joining = [DecodingSequence(next(self._sources), options, None, _raise_error) for _ in range(self._half)]
        self._scheduler.submit(joining)
        stalls = [self._step_ms()]
        while any(sequence.state is SequenceState.WAITING for sequence in joining):
            stalls.append(self._step_ms())
        took = time.perf_counter() - started
        while any(sequence.state is not SequenceState.FINISHED for sequence in joining):
            self._step_ms()
        return Burst(statistics.median(calm), max(stalls), 1e3 * took, len(stalls))

    def _submit_long(self, target_tokens: int) -> None:
        def on_finish(sequence: DecodingSequence) -> None:
            _raise_error(sequence)
            self._submit_long(self._longest)

        options = search(target_tokens, target_tokens)
        self._scheduler.submit([DecodingSequence(next(self._sources), options, None, on_finish)])

    def _step_ms(self) -> float:
        """Makes a step; returns the time from the end of the decoder's previous run to the end of this one."""
        self._stopwatch.spans.clear()
        self._engine.step()
        (ended_ns,) = (span.ended_ns for span in self._stopwatch.spans if span.name == DECODER)
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


def _raise_error(sequence: DecodingSequence) -> None:
    if sequence.error is not None:
        raise sequence.error
