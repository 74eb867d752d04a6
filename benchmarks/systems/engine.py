"""The service's engine with a stopwatch around its phases and around each run of ONNX Runtime.

The methods of the server are measured from outside: its code contains no measurement. A span holds the whole time of a
call and its own time: without the measured calls inside it. A stopwatch belongs to one thread.

`LiveEngines` run in threads of their own.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from benchmarks.systems.translating import LENGTH_PENALTY, SourceSentence
from serve.engine.engine import Engine
from serve.observability.metrics import Metrics
from serve.runtime.host import HostSessions
from serve.runtime.model import Model, Scores
from serve.runtime.placement import ModelSessions
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import DecodingSequence, SequenceSpec
from serve.search.options import SearchOptions
from serve.settings import ServeSettings

# The measured parts of a step in their order: runs of the sessions, and methods of engine and runtime without the runs
# inside. What remains of the step is last.
PHASES = {
    "_admit": "admit",
    "encoder": "prefill: encoder run",
    "_prefill": "prefill: around it",
    "decoder": "decode: decoder run",
    "choose": "select: choose run",
    "log_probabilities": "select: log-probabilities run",
    "topk": "select: top-k run",
    "_select": "select: around it",
    "branch_rows": "branch",
    "_retire": "retire",
    "step": "rest",
}
RUNS = ("encoder", "decoder", "choose", "log_probabilities", "topk")
# Measures a block, or every call of a function, under a name.
Measure = Callable[[str], Any]


class Span(NamedTuple):
    """One call in nanoseconds; `own_ns` is its duration without the measured calls inside."""

    name: str
    started_ns: int
    ended_ns: int
    own_ns: int


class Stopwatch:
    """Records calls as they end, so that an enclosing call follows the calls inside it. Not thread-safe."""

    def __init__(self, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        """Starts without calls; `clock` returns nanoseconds."""
        self.spans: list[Span] = []
        self._clock = clock
        self._inner_ns = 0

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Times the block; the overhead, about a microsecond, counts for the enclosing call."""
        before_ns, self._inner_ns = self._inner_ns, 0
        started_ns = self._clock()
        try:
            yield
        finally:
            ended_ns = self._clock()
            elapsed_ns = ended_ns - started_ns
            self.spans.append(Span(name, started_ns, ended_ns, elapsed_ns - self._inner_ns))
            self._inner_ns = before_ns + elapsed_ns


def gaps_us(spans: Iterable[Span]) -> list[float]:
    """Returns the times between successive decoder runs, without other runs of ONNX Runtime, in microseconds."""
    gaps: list[float] = []
    ended_ns: int | None = None
    other_ns = 0
    for span in spans:
        if span.name == "decoder":
            if ended_ns is not None:
                gaps.append((span.started_ns - ended_ns - other_ns) / 1e3)
            ended_ns, other_ns = span.ended_ns, 0
        elif span.name in RUNS:
            other_ns += span.own_ns
    return gaps


def watched(sessions: HostSessions, measure: Measure) -> HostSessions:
    """Returns the same sessions with measured runs."""

    def watch(name: str) -> Any:
        session = getattr(sessions, name)
        measured = {method: measure(name)(getattr(session, method)) for method in ("run", "run_with_iobinding")}
        return SimpleNamespace(io_binding=session.io_binding, **measured)

    return replace(sessions, **{name: watch(name) for name in RUNS if hasattr(sessions, name)})


class WatchedEngine(Engine):
    """An engine with a scheduler of its own and measured steps, phases and runs, stepped in the calling thread."""

    def __init__(self, sessions: HostSessions, slots: int, prefill_token_budget: int) -> None:
        metrics = Metrics(CollectorRegistry(), sessions.manifest.name)
        self.scheduler = Scheduler(slots, slots, prefill_token_budget, metrics)
        self.stopwatch = Stopwatch()
        runtime = watched(sessions, self.stopwatch.measure).runtime(slots)
        super().__init__(runtime, self.scheduler, metrics, sessions.manifest)
        for part in PHASES.keys() - set(RUNS):
            thing = self if hasattr(self, part) else runtime
            setattr(thing, part, self.stopwatch.measure(part)(getattr(thing, part)))

    def occupy(self, sources: Iterator[tuple[int, ...]], sequences: int, longest: int, beam_size: int = 1) -> None:
        """Keeps so many sequences of `longest` target tokens running: whenever one ends, the next one starts.

        The first ones have different lengths, so that their ends are spread evenly over the steps.
        """

        def submit(target_tokens: int) -> None:
            options = search_options(target_tokens, target_tokens, beam_size)
            self.scheduler.submit([DecodingSequence(next(sources), options, None, renew)])

        def renew(ended: DecodingSequence) -> None:
            raise_error(ended)
            submit(longest)

        for number in range(sequences):
            submit(1 + number * longest // sequences)


# No benchmark queues more rows.
MOST_WAITING_ROWS = 1 << 24
Order = Callable[[Iterable[DecodingSequence]], list[DecodingSequence]]


class LiveEngines:
    """Engines that run in threads of their own and share a scheduler."""

    def __init__(
        self, sessions: ModelSessions, *, engines: int, slots: int, prefill_token_budget: int | None = None
    ) -> None:
        """Starts engines of `slots` rows; the default budget is that of the server."""
        self.slots = slots
        manifest, budget = sessions.manifest, prefill_token_budget or ServeSettings().prefill_token_budget
        metrics = Metrics(CollectorRegistry(), manifest.name)
        self._scheduler = Scheduler(engines * slots, MOST_WAITING_ROWS, budget, metrics, engines=engines)
        models = [self._open_model(sessions) for _ in range(engines)]
        self._engines = [Engine(model, self._scheduler, metrics, manifest) for model in models]
        for engine in self._engines:
            engine.start()

    def _open_model(self, sessions: ModelSessions) -> Model:
        return sessions.runtime(self.slots)

    def submit(self, specs: Sequence[SequenceSpec], on_finish: Callable[[DecodingSequence], None]) -> None:
        """Submits sequences together; an engine's thread calls `on_finish` when one has ended."""
        self._scheduler.submit([DecodingSequence(*spec, None, on_finish) for spec in specs])

    def translate(self, specs: Sequence[SequenceSpec], order: Order = list) -> list[DecodingSequence]:
        """Submits sequences together, in the given order, and returns them in that of the specs once all have ended."""
        finished: SimpleQueue[DecodingSequence] = SimpleQueue()
        sequences = [DecodingSequence(*spec, None, finished.put) for spec in specs]
        self._scheduler.submit(order(sequences))
        for _ in sequences:
            raise_error(finished.get())
        return sequences

    def close(self) -> None:
        """Stops the engines; sequences that still run end with an error."""
        for engine in self._engines:
            engine.stop()


class Occupancy(NamedTuple):
    """The rows of a decode step, and the sequences in the queue."""

    rows: int
    waiting: int


class CountedEngines(LiveEngines):
    """Engines that record their runs and the rows of their steps; the records are complete when nothing runs."""

    def __init__(
        self, sessions: HostSessions, *, engines: int, slots: int, prefill_token_budget: int | None = None
    ) -> None:
        self.stopwatches: list[Stopwatch] = []
        self.steps: list[Occupancy] = []
        super().__init__(sessions, engines=engines, slots=slots, prefill_token_budget=prefill_token_budget)

    def _open_model(self, sessions: ModelSessions) -> Model:
        stopwatch = Stopwatch()
        self.stopwatches.append(stopwatch)
        model = super()._open_model(watched(cast("HostSessions", sessions), stopwatch.measure))
        step = model.step

        def count(rows: NDArray[np.int64], *arrays: Any, **options: Any) -> Scores:
            self.steps.append(Occupancy(len(rows), self._scheduler.waiting))
            return step(rows, *arrays, **options)

        model.step = count  # type: ignore[method-assign]
        return model


def occupancy(steps: Sequence[Occupancy], slots: int) -> float:
    """Returns the share of slots taken in steps while sequences wait; 1 if none ever waits."""
    busy = [step.rows for step in steps if step.waiting]
    return sum(busy) / (len(busy) * slots) if busy else 1.0


def search_options(shortest: int, longest: int, beam_size: int = 1) -> SearchOptions:
    """Returns options for a translation of `shortest` to `longest` tokens."""
    return SearchOptions(
        min_target_tokens=shortest, max_target_tokens=longest, beam_size=beam_size, length_penalty=LENGTH_PENALTY
    )


def specs_of(sentences: Sequence[SourceSentence], beam_size: int) -> list[SequenceSpec]:
    """Returns sentences with their search options."""
    return [SequenceSpec(each.source_ids, search_options(*each.limits, beam_size)) for each in sentences]


def raise_error(sequence: DecodingSequence) -> None:
    """Raises the error of a sequence that has no translation."""
    if sequence.error is not None:
        raise sequence.error
