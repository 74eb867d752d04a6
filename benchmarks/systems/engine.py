"""The service's engine with a stopwatch around its phases, set from outside: the engine itself knows nothing of it.

What is measured is each phase of a step, and each run of ONNX Runtime inside it. Called by
`benchmarks.systems.steady_engine`; for the runtime alone, by `benchmarks.systems.live_engines`; and for the sessions
alone, by `benchmarks.watched_server`.
"""

from collections.abc import Sequence as Sequences
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.systems.stopwatch import Stopwatch
from serve.engine.engine import Engine
from serve.observability.metrics import Metrics
from serve.runtime.cpu import Runtime, Sessions, rows_ahead
from serve.runtime.scores import Scores
from serve.scheduler.scheduler import Scheduler
from serve.scheduler.sequence import Sequence

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
        super().__init__(watched(sessions, stopwatch), slots, rows_ahead(slots))
        self._stopwatch = stopwatch

    def branch_rows(self, sources: Sequences[int], targets: Sequences[int], positions: Sequences[int]) -> None:
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

    def admit(self, free_rows: int, running_rows: int, rows_ahead: int = 0) -> list[Sequence]:
        """Hands out the sequences that start now."""
        with self._stopwatch.measure(ADMIT):
            return super().admit(free_rows, running_rows, rows_ahead)


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

    def _prefill(self, sequences: list[Sequence]) -> None:
        with self._stopwatch.measure(PREFILL):
            super()._prefill(sequences)

    def _select(self, scores: Scores) -> NDArray[np.bool_]:
        with self._stopwatch.measure(SELECT):
            return super()._select(scores)

    def _retire(self, over: NDArray[np.bool_]) -> None:
        with self._stopwatch.measure(RETIRE):
            super()._retire(over)
