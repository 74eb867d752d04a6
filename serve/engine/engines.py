"""The engines of one model with the scheduler in front of them: in Python, or native."""

import asyncio
from collections.abc import Iterable

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.engine.engine import Engine
from dragoman.serve.engine.native.engine import NativeEngine
from dragoman.serve.engine.native.model import loop_config, loop_library
from dragoman.serve.engine.native.scheduler import NativeScheduler
from dragoman.serve.native.loop import LoopModel
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.runtime.model import Model
from dragoman.serve.scheduler.request_scheduler import RequestScheduler
from dragoman.serve.scheduler.scheduler import Scheduler
from dragoman.serve.settings import ServeSettings

# What the engines of a bundle compute with: a model for each in Python, or the sessions that native ones share.
Models = Iterable[Model] | LoopModel


class PythonEngines:
    """Engines in Python, one thread each; `running`: the engines that were started and not stopped."""

    def __init__(
        self, settings: ServeSettings, bundle: Bundle, metrics: Metrics, continuing_ids: tuple[int, ...] = ()
    ) -> None:
        """Starts without engines; `continuing_ids` are the tokens that continue a word."""
        self._settings = settings
        self._manifest = bundle.manifest
        self._continuing_ids = continuing_ids
        self._metrics = metrics
        self._scheduler = Scheduler(
            settings.total_slots,
            settings.max_waiting,
            settings.prefill_token_budget,
            metrics,
            engines=settings.engine_count,
            running_token_budget=settings.running_token_budget,
            queue_timeout_seconds=settings.queue_timeout_seconds,
        )
        self.running: list[Engine | NativeEngine] = []

    @property
    def scheduler(self) -> RequestScheduler:
        """Queues the sequences of requests."""
        return self._scheduler

    def start(self, models: Models) -> None:
        """Starts an engine for each model; raises TypeError if the models are those of native engines."""
        if isinstance(models, LoopModel):
            raise TypeError("models: expected one for each engine in Python")
        for model in models:
            engine = Engine(
                model,
                self._scheduler,
                self._metrics,
                self._manifest,
                continuing_ids=self._continuing_ids,
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
        self._scheduler = NativeScheduler(
            loop_library(),
            loop_config(settings, bundle, continuing_ids),
            settings.max_waiting,
            metrics,
            queue_timeout_seconds=settings.queue_timeout_seconds,
        )
        self._native: list[NativeEngine] = []
        self.running: list[Engine | NativeEngine] = []

    @property
    def scheduler(self) -> RequestScheduler:
        """Queues the sequences of requests."""
        return self._scheduler

    def start(self, models: Models) -> None:
        """Starts the engines, and delivers their results in the running event loop.

        Raises:
            TypeError: if the models are those of engines in Python.
        """
        if not isinstance(models, LoopModel):
            raise TypeError("models: expected the sessions of native engines")
        self._scheduler.watch(asyncio.get_running_loop())
        self._native = NativeEngine.start_all(self._scheduler, models, self._settings, self._metrics)
        self.running += self._native
        models.close()  # the engines hold the sessions

    def publish(self) -> None:
        """Adds what the engines counted since the last call to the metrics, and updates the gauges."""
        self._scheduler.publish_load()
        if self.running:
            for engine in self._native:
                engine.publish()

    def close(self) -> None:
        """Frees the loop, whose engines have been stopped."""
        self._scheduler.close()
