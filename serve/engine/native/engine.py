"""A native engine as the registry sees it: start, stop, health and metrics. The loop runs it in a thread of its own."""

import math
import time
from collections.abc import Callable
from typing import ClassVar, Self

import structlog

from dragoman.serve.engine.native.scheduler import NativeScheduler
from dragoman.serve.native.loop import LoopModel
from dragoman.serve.observability.metrics import Metrics, Phase
from dragoman.serve.settings import ServeSettings

log = structlog.get_logger(__name__)


class NativeEngine:
    """One engine of a native loop.

    Attributes:
        abandoned: the engines of this process that hung when they were stopped; their threads may still compute.
    """

    abandoned: ClassVar[int] = 0

    def __init__(
        self,
        scheduler: NativeScheduler,
        number: int,
        metrics: Metrics,
        *,
        step_timeout_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Describes an engine that the loop has.

        Args:
            number: of the engine in the loop.
            step_timeout_seconds: a step that takes longer counts as hanging.
            clock: that of the loop.
        """
        self._scheduler = scheduler
        self._loop = scheduler.loop
        self._number = number
        self._metrics = metrics
        self._step_timeout_seconds = step_timeout_seconds
        self._clock = clock
        self._published = self._loop.counts(number)[:2]

    @classmethod
    def start_all(
        cls, scheduler: NativeScheduler, model: LoopModel, settings: ServeSettings, metrics: Metrics
    ) -> list[Self]:
        """Adds and starts an engine for each of the settings; raises LoopError if the model does not fit the loop."""
        engines = []
        for number in range(settings.engine_count):
            scheduler.loop.add_engine(model, settings.slots)
            engines.append(cls(scheduler, number, metrics, step_timeout_seconds=settings.step_timeout_seconds))
        for engine in engines:
            engine.start()
        return engines

    @property
    def condition(self) -> tuple[bool, int]:
        """Whether the engine is healthy, and its failure count; both are read at once."""
        health = self._loop.health(self._number)
        return bool(health.healthy) and not self._hangs(health.step_started_seconds), int(health.failure_count)

    @property
    def failure_count(self) -> int:
        """How many times several failures in a row made the engine unhealthy."""
        return int(self._loop.health(self._number).failure_count)

    @property
    def healthy(self) -> bool:
        """False after several failures in a row, until a step succeeds, and while a step hangs."""
        return self.condition[0]

    @property
    def hanging(self) -> bool:
        """True while a step exceeds its timeout."""
        return self._hangs(self._loop.health(self._number).step_started_seconds)

    def _hangs(self, step_started_seconds: float) -> bool:
        return step_started_seconds >= 0 and self._clock() - step_started_seconds > self._step_timeout_seconds

    def start(self) -> None:
        """Starts the thread."""
        self._loop.start(self._number)

    def stop(self, timeout_seconds: float | None = None) -> None:
        """Ends the thread after its current step, then fails all sequences with DrainingError.

        A thread that exceeds the timeout is abandoned with its rows, and their sequences fail; None: no timeout.
        """
        self._scheduler.drain()
        if not self._loop.stop(self._number, math.inf if timeout_seconds is None else timeout_seconds):
            log.error("engine_hangs")
            NativeEngine.abandoned += 1
        self._scheduler.deliver()
        self.publish()

    def publish(self) -> None:
        """Adds the runs of the model since the last call to the metrics."""
        counts = self._loop.counts(self._number)[:2]
        phases: tuple[Phase, Phase] = ("encode", "decode")
        for phase, now, before in zip(phases, counts, self._published, strict=True):
            self._metrics.add_steps(
                phase,
                seconds=now.seconds - before.seconds,
                sequences=now.sequences - before.sequences,
                by_seconds=_difference(now.by_seconds, before.by_seconds),
                by_sequences=_difference(now.by_sequences, before.by_sequences),
            )
        self._published = counts


def _difference(now: tuple[int, ...], before: tuple[int, ...]) -> list[int]:
    return [left - right for left, right in zip(now, before, strict=True)]
