"""The service's engine with a stopwatch around its phases, set from outside: the engine itself knows nothing of it.

What is measured is each phase of a step, and each run of ONNX Runtime inside it. Called by
`benchmarks.systems.engine`; for the runtime alone, by `benchmarks.systems.engine`; and for the sessions
alone, by `benchmarks.watched_server`.

Takes the times of calls inside calls.

Each call has its whole time, and its own time: without what the measured calls inside it took. For one thread. Knows
nothing of what is called; used by `benchmarks.systems.engine`.

Engines of the server with their threads, whose decoder runs are written down. No tokenizer, no network.

Called by the parts of `dragoman bench scheduling` that need to see what a client does not.

The service's own engine under a load that never changes, stepped in the calling thread: what a step costs.

As many sequences run as there are rows for. They end at different steps, evenly spread, and a new one waits whenever
one has ended, so that every step does what steps do in a busy server. Called by `benchmarks.profiling`.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from benchmarks.systems.translating import draw_sources
from serve.engine.engine import Engine
from serve.observability.metrics import Metrics
from serve.runtime.cpu import Runtime, Sessions, prefetched_rows
from serve.runtime.model import Scores
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import DecodingSequence
from serve.search.options import SearchOptions


class Span(NamedTuple):
    """One call.

    Attributes:
        name: of what was called.
        started_ns: when it began, in nanoseconds.
        ended_ns: when it ended.
        own_ns: how long it took without the measured calls inside it.
    """

    name: str
    started_ns: int
    ended_ns: int
    own_ns: int


class Stopwatch:
    """Writes calls down as they end; one that encloses others comes after them.

    Attributes:
        spans: the calls so far.
    """

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """Starts with no call.

        Args:
            clock: the time in nanoseconds.
        """
        self.spans: list[Span] = []
        self._clock = clock
        self._inner_ns = 0

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Takes the time of the block; a call costs its encloser about a microsecond."""
        before_ns, self._inner_ns = self._inner_ns, 0
        started_ns = self._clock()
        try:
            yield
        finally:
            ended_ns = self._clock()
            elapsed_ns = ended_ns - started_ns
            self.spans.append(Span(name, started_ns, ended_ns, elapsed_ns - self._inner_ns))
            self._inner_ns = before_ns + elapsed_ns


# Runs of ONNX Runtime, by their graph.
ENCODER, DECODER, LOG_PROBABILITIES, TOPK = "encoder", "decoder", "log-probabilities", "top-k"
RUNS = (ENCODER, DECODER, LOG_PROBABILITIES, TOPK)
# Phases of a step, each without the runs inside it, and the step without its phases.
ADMIT, PREFILL, SELECT, BRANCH, RETIRE, STEP = "admit", "prefill", "select", "branch", "retire", "step"


class Watch(Protocol):
    """What measures runs; a stopwatch does."""

    def measure(self, name: str) -> AbstractContextManager[None]:
        """Measures the block, which is known by a name."""


class WatchedSession:
    """A session of ONNX Runtime whose runs are measured."""

    def __init__(self, session: Any, watch: Watch, name: str) -> None:
        self._session = session
        self._watch = watch
        self._name = name

    def run(self, *arguments: Any) -> Any:
        """Runs the graph, and allocates what it returns."""
        with self._watch.measure(self._name):
            return self._session.run(*arguments)

    def io_binding(self) -> Any:
        """Returns a new binding."""
        return self._session.io_binding()

    def run_with_iobinding(self, *arguments: Any) -> None:
        """Runs the graph on memory that is bound."""
        with self._watch.measure(self._name):
            self._session.run_with_iobinding(*arguments)


def watched(sessions: Sessions, watch: Watch) -> Sessions:
    """Returns sessions that compute the same, and whose runs are measured."""
    return replace(
        sessions,
        encoder=WatchedSession(sessions.encoder, watch, ENCODER),
        decoder=WatchedSession(sessions.decoder, watch, DECODER),
        log_probabilities=WatchedSession(sessions.log_probabilities, watch, LOG_PROBABILITIES),
        topk=WatchedSession(sessions.topk, watch, TOPK),
    )


class WatchedRuntime(Runtime):
    """A runtime whose runs and branches are measured."""

    def __init__(self, sessions: Sessions, slots: int, stopwatch: Stopwatch) -> None:
        super().__init__(watched(sessions, stopwatch), slots, prefetched_rows(slots))
        self._stopwatch = stopwatch

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies rows over others of the same source."""
        with self._stopwatch.measure(BRANCH):
            super().branch_rows(sources, targets, positions)


class WatchedScheduler(Scheduler):
    """A scheduler of one engine, whose admissions are measured."""

    def __init__(
        self, slots: int, queue_limit: int, prefill_token_budget: int, metrics: Metrics, stopwatch: Stopwatch
    ) -> None:
        super().__init__(slots, queue_limit, prefill_token_budget, metrics)
        self._stopwatch = stopwatch

    def admit(self, free_rows: int, running_rows: int, prefetched_rows: int = 0) -> list[DecodingSequence]:
        """Hands out the sequences that start now."""
        with self._stopwatch.measure(ADMIT):
            return super().admit(free_rows, running_rows, prefetched_rows)


class WatchedEngine(Engine):
    """An engine whose steps and phases are measured."""

    def __init__(
        self,
        sessions: Sessions,
        slots: int,
        scheduler: Scheduler,
        metrics: Metrics,
        stopwatch: Stopwatch,
    ) -> None:
        manifest = sessions.manifest
        super().__init__(
            WatchedRuntime(sessions, slots, stopwatch),
            scheduler,
            metrics,
            bos_id=manifest.bos_id,
            eos_id=manifest.eos_id,
            pad_id=manifest.pad_id,
            max_target_tokens=manifest.max_target_tokens,
        )
        self._stopwatch = stopwatch

    def step(self) -> None:
        """Moves every sequence on by one token."""
        with self._stopwatch.measure(STEP):
            super().step()

    def _prefill(self, sequences: list[DecodingSequence]) -> None:
        with self._stopwatch.measure(PREFILL):
            super()._prefill(sequences)

    def _select(self, scores: Scores) -> NDArray[np.bool_]:
        with self._stopwatch.measure(SELECT):
            return super()._select(scores)

    def _retire(self, over: NDArray[np.bool_]) -> None:
        with self._stopwatch.measure(RETIRE):
            super()._retire(over)


# No benchmark has more rows that wait.
MOST_WAITING_ROWS = 1 << 24


class Occupancy(NamedTuple):
    """A decode step.

    Attributes:
        rows: that it computes.
        waiting: sequences that wait meanwhile.
    """

    rows: int
    waiting: int


class CountedRuntime(WatchedRuntime):
    """A runtime that writes down how many rows its steps have, and how many sequences wait meanwhile."""

    def __init__(self, sessions: Sessions, slots: int, scheduler: Scheduler) -> None:
        self.stopwatch = Stopwatch()
        self.steps: list[Occupancy] = []
        self._scheduler = scheduler
        super().__init__(sessions, slots, self.stopwatch)

    def decode_step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
    ) -> NDArray[np.float32]:
        """Computes one step."""
        self.steps.append(Occupancy(min(max(len(token_ids), occupied), self.slots), self._scheduler.waiting))
        return super().decode_step(token_ids, positions, source_lengths, occupied=occupied)


class LiveEngines:
    """Running engines behind a scheduler.

    Attributes:
        runtimes: of each engine; what they wrote down is complete when nothing runs.
    """

    def __init__(self, sessions: Sessions, *, engines: int, slots: int, prefill_token_budget: int) -> None:
        manifest = sessions.manifest
        metrics = Metrics(CollectorRegistry(), manifest.name)
        self._scheduler = Scheduler(engines * slots, MOST_WAITING_ROWS, prefill_token_budget, metrics, engines=engines)
        self.runtimes = [CountedRuntime(sessions, slots, self._scheduler) for _ in range(engines)]
        self._engines = [
            Engine(
                runtime,
                self._scheduler,
                metrics,
                bos_id=manifest.bos_id,
                eos_id=manifest.eos_id,
                pad_id=manifest.pad_id,
                max_target_tokens=manifest.max_target_tokens,
            )
            for runtime in self.runtimes
        ]

    @classmethod
    @contextmanager
    def run(cls, sessions: Sessions, *, engines: int, slots: int, prefill_token_budget: int) -> Iterator[Self]:
        """Runs engines until the block ends; what still runs then ends with an error."""
        live = cls(sessions, engines=engines, slots=slots, prefill_token_budget=prefill_token_budget)
        for engine in live._engines:
            engine.start()
        try:
            yield live
        finally:
            for engine in live._engines:
                engine.stop()

    def submit(
        self, sources: list[tuple[tuple[int, ...], SearchOptions]], on_finish: Callable[[DecodingSequence], None]
    ) -> None:
        """Submits sequences together.

        Args:
            sources: source ids and options of each.
            on_finish: called from an engine's thread when one has ended.
        """
        self._scheduler.submit(
            [DecodingSequence(source_ids, options, None, on_finish) for source_ids, options in sources]
        )

    def translate(self, sources: list[tuple[tuple[int, ...], SearchOptions]]) -> list[DecodingSequence]:
        """Submits sequences together and returns them, in the order in which they end.

        Raises:
            ServiceError: if an engine fails.
        """
        finished: SimpleQueue[DecodingSequence] = SimpleQueue()
        self.submit(sources, finished.put)
        sequences = [finished.get() for _ in sources]
        for sequence in sequences:
            if sequence.error is not None:
                raise sequence.error
        return sequences


def occupancy(steps: list[Occupancy], slots: int) -> float:
    """Returns the share of slots that are taken in the steps while something waits; 1 if nothing ever does."""
    busy = [step.rows for step in steps if step.waiting]
    return sum(busy) / (len(busy) * slots) if busy else 1.0


SEED = 1


@dataclass(frozen=True, slots=True)
class SteadyLoad:
    """What runs all the time.

    Attributes:
        rows: rows of every step.
        beam_size: rows of a sequence; it divides the rows.
        source_tokens: of every sequence, the end token included.
        target_tokens: of every sequence, the end token excluded.
        prefill_token_budget: the most source tokens that join between two steps.
    """

    rows: int
    beam_size: int
    source_tokens: int
    target_tokens: int
    prefill_token_budget: int

    @property
    def sequences(self) -> int:
        """Sequences that run together."""
        return self.rows // self.beam_size


class SteadyEngine:
    """An engine that always has something to do."""

    def __init__(self, sessions: Sessions, load: SteadyLoad) -> None:
        """Starts empty; the first steps fill the rows and are not like the others: see `warm_up_steps`."""
        manifest = sessions.manifest
        metrics = Metrics(CollectorRegistry(), manifest.name)
        self._load = load
        self._stopwatch = Stopwatch()
        self._scheduler = WatchedScheduler(load.rows, load.rows, load.prefill_token_budget, metrics, self._stopwatch)
        self._engine = WatchedEngine(sessions, load.rows, self._scheduler, metrics, self._stopwatch)
        sources = draw_sources(
            SEED, load.sequences, load.source_tokens, manifest.vocabulary_size, manifest.eos_id
        ).tolist()
        self._sources: list[list[int]] = sources
        self._places = np.arange(load.sequences)
        self._ended: list[int] = []
        for place in range(load.sequences):
            self._submit(place, 1 + place * load.target_tokens // load.sequences)

    @property
    def warm_up_steps(self) -> int:
        """Steps after which every row is taken and all first sequences have ended."""
        return 2 * self._load.target_tokens

    def run(self, steps: int, advance: Callable[[], object]) -> list[Span]:
        """Makes so many steps and returns their spans.

        Args:
            steps: how many.
            advance: called after each.
        """
        self._stopwatch.spans.clear()
        for _ in range(steps):
            self._engine.step()
            while self._ended:
                self._submit(self._ended.pop(), self._load.target_tokens)
            advance()
        return self._stopwatch.spans[:]

    def _submit(self, place: int, target_tokens: int) -> None:
        def on_finish(sequence: DecodingSequence) -> None:
            if sequence.error is not None:
                raise sequence.error
            self._ended.append(place)

        options = SearchOptions(
            min_target_tokens=target_tokens, max_target_tokens=target_tokens, beam_size=self._load.beam_size
        )
        self._scheduler.submit([DecodingSequence(tuple(self._sources[place]), options, None, on_finish)])
