"""Engines of the server with their threads, whose decoder runs are written down. No tokenizer, no network.

Called by the parts of `dragoman bench scheduling` that need to see what a client does not.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry

from benchmarks.systems.engine import WatchedRuntime
from benchmarks.systems.stopwatch import Stopwatch
from serve.engine.engine import Engine
from serve.observability.metrics import Metrics
from serve.runtime.cpu import Sessions
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import Sequence
from serve.search.options import SearchOptions

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
        held: int = 0,
    ) -> NDArray[np.float32]:
        """Computes one step."""
        self.steps.append(Occupancy(min(max(len(token_ids), held), self.slots), self._scheduler.waiting))
        return super().decode_step(token_ids, positions, source_lengths, held=held)


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
        self, sources: list[tuple[tuple[int, ...], SearchOptions]], on_finish: Callable[[Sequence], None]
    ) -> None:
        """Submits sequences together.

        Args:
            sources: source ids and options of each.
            on_finish: called from an engine's thread when one has ended.
        """
        self._scheduler.submit([Sequence(source_ids, options, None, on_finish) for source_ids, options in sources])

    def translate(self, sources: list[tuple[tuple[int, ...], SearchOptions]]) -> list[Sequence]:
        """Submits sequences together and returns them, in the order in which they end.

        Raises:
            ServiceError: if an engine fails.
        """
        finished: SimpleQueue[Sequence] = SimpleQueue()
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
