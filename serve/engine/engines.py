"""The engines of one model with the scheduler in front of them, in Python or native, and their readiness.

A native engine is a thread of the loop. A model is ready if its golden sentences came out right and its engines are
healthy; `dragoman.serve.registry.lifecycle` holds the state of the whole service.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Self

import structlog

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.engine.engine import Engine
from dragoman.serve.engine.native.model import loop_config
from dragoman.serve.engine.native.scheduler import NativeScheduler
from dragoman.serve.errors import NotReadyError
from dragoman.serve.native.loop import LoopModel, loop_library
from dragoman.serve.observability.metrics import Metrics, Phase
from dragoman.serve.runtime.model import Model
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.settings import ServeSettings

# What the engines of a bundle compute with: a model for each in Python, or the sessions that native ones share.
Models = Iterable[Model] | LoopModel

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


class PythonEngines:
    """Engines in Python, one thread each.

    Attributes:
        scheduler: queues the sequences of requests.
        running: the engines that were started and not stopped.
    """

    def __init__(
        self, settings: ServeSettings, bundle: Bundle, metrics: Metrics, continuing_ids: tuple[int, ...] = ()
    ) -> None:
        """Starts without engines; `continuing_ids` are the tokens that continue a word."""
        self._settings = settings
        self._manifest = bundle.manifest
        self._continuing_ids = continuing_ids
        self._shortlist = bundle.shortlist()
        self._metrics = metrics
        self.scheduler = Scheduler(
            settings.total_slots,
            settings.max_waiting,
            settings.prefill_token_budget,
            metrics,
            engines=settings.engine_count,
            running_token_budget=settings.running_token_budget,
            queue_timeout_seconds=settings.queue_timeout_seconds,
        )
        self.running: list[Engine | NativeEngine] = []

    def start(self, models: Models) -> None:
        """Starts an engine for each model; raises TypeError if the models are those of native engines."""
        if isinstance(models, LoopModel):
            raise TypeError("models: expected one for each engine in Python")
        for model in models:
            engine = Engine(
                model,
                self.scheduler,
                self._metrics,
                self._manifest,
                continuing_ids=self._continuing_ids,
                shortlist=self._shortlist,
                step_timeout_seconds=self._settings.step_timeout_seconds,
            )
            engine.start()
            self.running.append(engine)

    def publish(self) -> None:
        """Does nothing: the engines publish their metrics at once."""

    def close(self) -> None:
        """Does nothing: the event loop watches nothing of the engines."""


class NativeEngines:
    """Native engines; attributes and methods as those of `PythonEngines`. Its methods are called in the event loop."""

    def __init__(
        self, settings: ServeSettings, bundle: Bundle, metrics: Metrics, continuing_ids: tuple[int, ...] = ()
    ) -> None:
        """Starts without engines; `continuing_ids` are the tokens that continue a word."""
        self._settings = settings
        self._metrics = metrics
        self.scheduler = NativeScheduler(
            loop_library(),
            loop_config(settings, bundle, continuing_ids),
            settings.max_waiting,
            metrics,
            queue_timeout_seconds=settings.queue_timeout_seconds,
        )
        self._native: list[NativeEngine] = []
        self.running: list[Engine | NativeEngine] = []

    def start(self, models: Models) -> None:
        """Starts the engines, and delivers their results in the running event loop.

        Raises TypeError if the models are those of engines in Python.
        """
        if not isinstance(models, LoopModel):
            raise TypeError("models: expected the sessions of native engines")
        self.scheduler.watch(asyncio.get_running_loop())
        self._native = NativeEngine.start_all(self.scheduler, models, self._settings, self._metrics)
        self.running += self._native
        models.close()  # the engines hold the sessions

    def publish(self) -> None:
        """Adds what the engines counted since the last call to the metrics, and updates the gauges."""
        self.scheduler.publish_load()
        if self.running:
            for engine in self._native:
                engine.publish()

    def close(self) -> None:
        """Frees the loop, whose engines have been stopped."""
        self.scheduler.close()


class Readiness:
    """Decides whether a model takes requests. Not thread-safe: belongs to the event loop's thread."""

    def __init__(self, metrics: Metrics, engines: Sequence[Engine | NativeEngine]) -> None:
        """Starts unverified.

        Args:
            metrics: gets the gauge `model_ready`.
            engines: those of the model; the list may grow and shrink afterwards.
        """
        self._metrics = metrics
        self._engines = engines
        self._verified_after_failures: int | None = None

    @property
    def verified(self) -> bool:
        """True if the golden sentences came out right and no engine has become unhealthy since."""
        return self._verified_after_failures == self._failure_count

    @verified.setter
    def verified(self, verified: bool) -> None:
        self._verified_after_failures = self._failure_count if verified else None
        self.refresh()

    @property
    def healthy(self) -> bool:
        """False while an engine is unhealthy."""
        return all(engine.healthy for engine in self._engines)

    @property
    def hanging(self) -> bool:
        """True while an engine hangs; only a restart of the process is certain to end that."""
        return any(engine.hanging for engine in self._engines)

    @property
    def ready(self) -> bool:
        """True if the model would translate a request now."""
        return self.fault() is None

    @property
    def _failure_count(self) -> int:
        return sum(engine.failure_count for engine in self._engines)

    def refresh(self) -> None:
        """Updates the gauge."""
        self._metrics.ready.set(self.ready)

    def fault(self) -> NotReadyError | None:
        """Returns why the model does not translate; None: it does."""
        failures = 0
        for engine in self._engines:
            healthy, count = engine.condition
            if not healthy:
                return NotReadyError("the model failed")
            failures += count
        return None if self._verified_after_failures == failures else NotReadyError("warming up")
