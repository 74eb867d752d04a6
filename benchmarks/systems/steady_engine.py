"""The service's own engine under a load that never changes, stepped in the calling thread: what a step costs.

As many sequences run as there are rows for. They end at different steps, evenly spread, and a new one waits whenever
one has ended, so that every step does what steps do in a busy server. Called by `benchmarks.step_profile`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from prometheus_client import CollectorRegistry

from benchmarks.systems.engine import WatchedEngine, WatchedScheduler
from benchmarks.systems.sources import draw_sources
from benchmarks.systems.stopwatch import Span, Stopwatch
from serve.observability.metrics import Metrics
from serve.runtime.cpu import Sessions
from serve.scheduler.sequence import Sequence
from serve.search.options import SearchOptions

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
        def on_finish(sequence: Sequence) -> None:
            if sequence.error is not None:
                raise sequence.error
            self._ended.append(place)

        options = SearchOptions(
            min_target_tokens=target_tokens, max_target_tokens=target_tokens, beam_size=self._load.beam_size
        )
        self._scheduler.submit([Sequence(tuple(self._sources[place]), options, None, on_finish)])
