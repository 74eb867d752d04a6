"""The service's engine with a stopwatch around its phases and around each run of ONNX Runtime.

The methods of the server are measured from outside: its code contains no measurement. A span holds the whole time of a
call and its own time: without the measured calls inside it. A stopwatch belongs to one thread.

`LiveEngines` run in threads of their own; `EngineTranslator` is the system that is compared with others, without
tokenizer and network. It does not import torch, because the memory of torch would count.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from benchmarks.systems.translating import LENGTH_PENALTY, Batching, SourceSentence, Translator
from serve.bundle.bundle import Bundle
from serve.bundle.manifest import Manifest
from serve.engine.engine import Engine
from serve.engine.prefill import longest_first
from serve.observability.logs import configure_logs
from serve.observability.metrics import Metrics
from serve.runtime.cpu import Runtime, Sessions, prefetched_rows
from serve.runtime.cuda.device import Device
from serve.runtime.cuda.runtime import DeviceSessions
from serve.runtime.model import Model
from serve.runtime.placement import ModelSessions, choose_device
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import DecodingSequence, SequenceSpec
from serve.search.options import SearchOptions
from serve.settings import ServeSettings


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


# Runs of ONNX Runtime, by graph.
ENCODER, DECODER, LOG_PROBABILITIES, TOPK = "encoder", "decoder", "log-probabilities", "top-k"
RUNS = (ENCODER, DECODER, LOG_PROBABILITIES, TOPK)
# Phases of a step without the runs inside, and the step without its phases.
ADMIT, PREFILL, SELECT, BRANCH, RETIRE, STEP = "admit", "prefill", "select", "branch", "retire", "step"


def gaps_us(spans: Iterable[Span]) -> list[float]:
    """Returns the times between successive decoder runs, without other runs of ONNX Runtime, in microseconds."""
    gaps: list[float] = []
    ended_ns: int | None = None
    other_ns = 0
    for span in spans:
        if span.name == DECODER:
            if ended_ns is not None:
                gaps.append((span.started_ns - ended_ns - other_ns) / 1e3)
            ended_ns, other_ns = span.ended_ns, 0
        elif span.name in RUNS:
            other_ns += span.own_ns
    return gaps


class Watch(Protocol):
    """Measures runs, as `Stopwatch` does."""

    def measure(self, name: str) -> AbstractContextManager[None]:
        """Measures the block under a name."""


@dataclass(frozen=True, slots=True)
class WatchedSession:
    """An ONNX Runtime session with measured runs."""

    session: Any
    watch: Watch
    name: str

    def run(self, *arguments: Any) -> Any:
        """Runs the graph and returns new arrays."""
        with self.watch.measure(self.name):
            return self.session.run(*arguments)

    def io_binding(self) -> Any:
        """Returns a new binding."""
        return self.session.io_binding()

    def run_with_iobinding(self, *arguments: Any) -> None:
        """Runs the graph on bound memory."""
        with self.watch.measure(self.name):
            self.session.run_with_iobinding(*arguments)


def watched(sessions: Sessions, watch: Watch) -> Sessions:
    """Returns the same sessions with measured runs."""
    return replace(
        sessions,
        encoder=WatchedSession(sessions.encoder, watch, ENCODER),
        decoder=WatchedSession(sessions.decoder, watch, DECODER),
        log_probabilities=WatchedSession(sessions.log_probabilities, watch, LOG_PROBABILITIES),
        topk=WatchedSession(sessions.topk, watch, TOPK),
    )


class WatchedEngine(Engine):
    """An engine with measured steps, phases and runs.

    Attributes:
        scheduler: supplies this engine only.
        stopwatch: records the spans.
    """

    def __init__(self, sessions: Sessions, slots: int, prefill_token_budget: int) -> None:
        metrics = Metrics(CollectorRegistry(), sessions.manifest.name)
        self.scheduler = Scheduler(slots, slots, prefill_token_budget, metrics)
        self.stopwatch = Stopwatch()
        runtime = Runtime(watched(sessions, self.stopwatch), slots, prefetched_rows(slots))
        super().__init__(runtime, self.scheduler, metrics, sessions.manifest)
        phases = {"_admit": ADMIT, "_prefill": PREFILL, "_select": SELECT, "_retire": RETIRE, "step": STEP}
        for thing, methods in ((self, phases), (runtime, {"branch_rows": BRANCH})):
            for method, name in methods.items():
                setattr(thing, method, self.stopwatch.measure(name)(getattr(thing, method)))


# No benchmark queues more rows.
MOST_WAITING_ROWS = 1 << 24
Order = Callable[[Iterable[DecodingSequence]], list[DecodingSequence]]


class Occupancy(NamedTuple):
    """The rows of a decode step, and the sequences in the queue."""

    rows: int
    waiting: int


class CountedRuntime(Runtime):
    """A runtime that records the rows of its steps and the waiting sequences."""

    def __init__(self, sessions: Sessions, slots: int, scheduler: Scheduler) -> None:
        self.stopwatch = Stopwatch()
        self.steps: list[Occupancy] = []
        self._scheduler = scheduler
        super().__init__(watched(sessions, self.stopwatch), slots, prefetched_rows(slots))

    def decode_step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
    ) -> NDArray[np.float32]:
        """Records and computes one step."""
        self.steps.append(Occupancy(min(max(len(token_ids), occupied), self.slots), self._scheduler.waiting))
        return super().decode_step(token_ids, positions, source_lengths, occupied=occupied)


class LiveEngines:
    """Engines that run in threads of their own and share a scheduler."""

    def __init__(
        self,
        manifest: Manifest,
        make_model: Callable[[Scheduler], Model],
        *,
        engines: int,
        slots: int,
        prefill_token_budget: int,
    ) -> None:
        """Starts engines of `slots` rows; at most `prefill_token_budget` source tokens join between two steps."""
        metrics = Metrics(CollectorRegistry(), manifest.name)
        self._scheduler = Scheduler(engines * slots, MOST_WAITING_ROWS, prefill_token_budget, metrics, engines=engines)
        models = [make_model(self._scheduler) for _ in range(engines)]
        self._engines = [Engine(model, self._scheduler, metrics, manifest) for model in models]
        for engine in self._engines:
            engine.start()

    def submit(self, specs: Sequence[SequenceSpec], on_finish: Callable[[DecodingSequence], None]) -> None:
        """Submits sequences together; an engine's thread calls `on_finish` when one has ended."""
        self._scheduler.submit([DecodingSequence(*spec, None, on_finish) for spec in specs])

    def translate(self, specs: Sequence[SequenceSpec], order: Order = list) -> list[DecodingSequence]:
        """Submits sequences together, in the given order, and returns them in that of the specs once all have ended.

        Raises:
            ServiceError: if an engine fails.
        """
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


class CountedEngines(LiveEngines):
    """Engines that record their decoder runs.

    Attributes:
        runtimes: one per engine; their records are complete when nothing runs.
    """

    def __init__(self, sessions: Sessions, *, engines: int, slots: int, prefill_token_budget: int) -> None:
        self.runtimes: list[CountedRuntime] = []
        self._slots = slots

        def make_model(scheduler: Scheduler) -> Model:
            self.runtimes.append(CountedRuntime(sessions, slots, scheduler))
            return self.runtimes[-1]

        super().__init__(
            sessions.manifest, make_model, engines=engines, slots=slots, prefill_token_budget=prefill_token_budget
        )

    @property
    def occupancy(self) -> float:
        """Share of slots taken in steps while sequences wait."""
        return occupancy([step for runtime in self.runtimes for step in runtime.steps], self._slots)


def search_options(shortest: int, longest: int, beam_size: int = 1) -> SearchOptions:
    """Returns options for a translation of `shortest` to `longest` tokens."""
    return SearchOptions(
        min_target_tokens=shortest, max_target_tokens=longest, beam_size=beam_size, length_penalty=LENGTH_PENALTY
    )


class EngineTranslator(Translator):
    """Translates with engines that share a scheduler.

    Attributes:
        slots: the current number of rows of each engine.
    """

    def __init__(
        self, folder: str, copies: int, threads: int, slots: int, prefill_token_budget: int | None = None
    ) -> None:
        """Starts the engines of a bundle: `copies` with `threads` intra-op threads and `slots` rows each.

        A bundle of the variant cuda runs on the first GPU. The budget is that of the server by default.
        """
        bundle = Bundle.open(Path(folder))
        on_gpu = choose_device("auto", bundle) == "cuda"
        self._sessions: ModelSessions = (
            DeviceSessions.load(bundle, Device("cuda")) if on_gpu else Sessions.load(bundle, threads)
        )
        self._copies = copies
        self._prefill_token_budget = prefill_token_budget or ServeSettings().prefill_token_budget
        self.slots = slots
        self._engines = self._start()

    def translate(self, sentences: Sequence[SourceSentence], beam_size: int, batching: Batching) -> list[Sequence[int]]:
        """Returns the target tokens of each sentence.

        A batching in rows sets the rows of each engine from now on; otherwise the scheduler decides.

        Raises:
            ServiceError: if an engine fails.
        """
        if batching.unit == "rows" and batching.size != self.slots:
            self.close()
            self.slots = batching.size
            self._engines = self._start()
        specs = [SequenceSpec(each.source_ids, search_options(*each.limits, beam_size)) for each in sentences]
        return [sequence.best.target_ids for sequence in self._engines.translate(specs, longest_first)]

    def close(self) -> None:
        """Stops the engines."""
        self._engines.close()

    def _start(self) -> LiveEngines:
        return LiveEngines(
            self._sessions.manifest,
            lambda _: self._sessions.runtime(self.slots, prefetched_rows(self.slots)),
            engines=self._copies,
            slots=self.slots,
            prefill_token_budget=self._prefill_token_budget,
        )


def load_engines(**options: Any) -> EngineTranslator:
    """Returns the translator of a process of `benchmarks.harness.process`, whose standard output is for answers."""
    configure_logs("console")
    return EngineTranslator(**options)


def raise_error(sequence: DecodingSequence) -> None:
    """Raises the error of a sequence that has no translation."""
    if sequence.error is not None:
        raise sequence.error


def occupancy(steps: list[Occupancy], slots: int) -> float:
    """Returns the share of slots taken in steps while sequences wait; 1 if none ever waits."""
    busy = [step.rows for step in steps if step.waiting]
    return sum(busy) / (len(busy) * slots) if busy else 1.0
