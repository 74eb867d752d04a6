"""The service's engine with a stopwatch around its phases, set from outside: the engine itself knows nothing of it.

What is measured is each phase of a step, and each run of ONNX Runtime inside it. Called by `loadtest.steady_engine`
and, for the runtime alone, by `loadtest.live_engines`.
"""

from collections.abc import Sequence as Sequences
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadtest.stopwatch import Stopwatch
from serve.engine import Engine
from serve.metrics import Metrics
from serve.runtime import Runtime, Sessions
from serve.scheduler import Scheduler
from serve.sequence import Sequence

# Runs of ONNX Runtime, by their graph.
ENCODER, DECODER, TOPK = "encoder", "decoder", "top-k"
RUNS = (ENCODER, DECODER, TOPK)
# Phases of a step, each without the runs inside it, and the step without its phases.
ADMIT, PREFILL, SELECT, BRANCH, RETIRE, STEP = "admit", "prefill", "select", "branch", "retire", "step"


class WatchedSession:
    """A session of ONNX Runtime whose runs are measured."""

    def __init__(self, session: Any, stopwatch: Stopwatch, name: str) -> None:
        self._session = session
        self._stopwatch = stopwatch
        self._name = name

    def run(self, *arguments: Any) -> Any:
        """Runs the graph, and allocates what it returns."""
        with self._stopwatch.measure(self._name):
            return self._session.run(*arguments)

    def io_binding(self) -> Any:
        """Returns a new binding."""
        return self._session.io_binding()

    def run_with_iobinding(self, binding: Any) -> None:
        """Runs the graph on memory that is bound."""
        with self._stopwatch.measure(self._name):
            self._session.run_with_iobinding(binding)


class WatchedRuntime(Runtime):
    """A runtime whose runs and branches are measured."""

    def __init__(self, sessions: Sessions, slots: int, stopwatch: Stopwatch) -> None:
        watched = (
            WatchedSession(session, stopwatch, name)
            for session, name in zip((sessions.encoder, sessions.decoder, sessions.topk), RUNS, strict=True)
        )
        encoder, decoder, topk = watched
        super().__init__(replace(sessions, encoder=encoder, decoder=decoder, topk=topk), slots)
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

    def admit(self, free_rows: int, running_rows: int) -> list[Sequence]:
        """Hands out the sequences that start now."""
        with self._stopwatch.measure(ADMIT):
            return super().admit(free_rows, running_rows)


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

    def _prefill(self, sequences: list[Sequence]) -> list[Sequence]:
        with self._stopwatch.measure(PREFILL):
            return super()._prefill(sequences)

    def _select(self, logits: NDArray[np.float32]) -> NDArray[np.bool_]:
        with self._stopwatch.measure(SELECT):
            return super()._select(logits)

    def _retire(self, over: NDArray[np.bool_]) -> None:
        with self._stopwatch.measure(RETIRE):
            super()._retire(over)
