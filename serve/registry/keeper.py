"""Keeps models in memory while requests need them, within the limits of time and memory.

A request for an absent model waits in a queue. One task takes the requests in their order: it makes room, loads the
models of the first one, and lets all requests begin whose models are loaded then. A request begins with all of its
models or with none, so that none of those that run waits for another one.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import structlog

from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.errors import DeadlineExceededError, DrainingError, NotReadyError, ServiceError
from dragoman.serve.host.system import return_memory, run_in_daemon_thread, trim_memory
from dragoman.serve.observability.metrics import EvictionCause, ServiceMetrics
from dragoman.serve.registry.eviction import idle_since, make_room
from dragoman.serve.registry.loader import FoundBundle, ModelLoader
from dragoman.serve.registry.registry import ModelRegistry, Presence, ServedModel
from dragoman.serve.settings import ServeSettings

log = structlog.get_logger("dragoman")


@dataclass(eq=False, slots=True)
class _Waiting:
    """A request that waits for models.

    Attributes:
        uses: gets the uses of the models when the request begins.
        begins: True when it does; False: one of the models was replaced.
    """

    wanted: Sequence[ServedModel]
    uses: ExitStack
    begins: "asyncio.Future[bool]"


class ModelKeeper:
    """Loads the served `models` and lets them leave. Not thread-safe: used in the event loop's thread."""

    def __init__(
        self, models: ModelRegistry, loader: ModelLoader, settings: ServeSettings, metrics: ServiceMetrics
    ) -> None:
        self.models = models
        self._loader = loader
        self._metrics = metrics
        self._idle_seconds = settings.model_idle_seconds
        limit_bytes = settings.memory_limit
        self._limit_bytes = math.inf if limit_bytes is None else limit_bytes / settings.process_count
        self._queue: deque[_Waiting] = deque()
        self._working: asyncio.Task[None] | None = None
        # Held while there is room for a model that is not loaded yet.
        self._lock = asyncio.Lock()

    async def prove_all(self) -> None:
        """Loads and verifies all models; those that may leave do so at once. Raises BundleError if one is unusable."""
        for model in self.models:
            self._check_fits(model)
            await self._loader.load(model)
            await self._leave_unused(model)
        await run_in_daemon_thread(trim_memory)

    async def replace(self, found: FoundBundle) -> None:
        """Serves a bundle in place of the model with its name, which stays if that fails; then raises BundleError."""
        async with self._lock:
            before = self.models.find(found.name)
            model = await self._replace(found)
            if before is None or before.presence is Presence.ABSENT:
                await self._leave_unused(model)

    async def add(self, name: str, bundle: Path) -> None:
        """Serves a bundle outside of the served folder, also after reloads; raises BundleError if that fails."""
        async with self._lock:
            await self._replace(await self._loader.add(name, bundle))

    async def use(self, wanted: Sequence[ServedModel], deadline_seconds: float, uses: ExitStack) -> bool:
        """Waits until models are loaded, and keeps them so until `uses` ends; the deadline is on the monotonic clock.

        Returns False if one of the models was replaced, so that the request must choose again.

        Raises:
            DeadlineExceededError: if the deadline passes first.
            NotReadyError: if a model cannot be loaded, or the models do not fit into the memory together.
        """
        waiting = _Waiting(wanted, uses, asyncio.get_running_loop().create_future())
        for model in wanted:
            if model.presence is not Presence.LOADED:
                model.metrics.waits.inc()
        self._queue.append(waiting)
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        try:
            async with asyncio.timeout(deadline_seconds - time.monotonic()):
                return await waiting.begins
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before the model was loaded") from None
        finally:
            if waiting in self._queue:
                self._queue.remove(waiting)

    async def evict_idle(self) -> None:
        """Lets the models leave that no request has needed for long."""
        if self._idle_seconds is None:
            return
        wanted = {model for waiting in self._queue for model in waiting.wanted}
        loaded = [model for model in self.models if model.presence is Presence.LOADED and model not in wanted]
        if idle := idle_since(loaded, time.monotonic() - self._idle_seconds):
            await self._evict(idle, "idle")
            await run_in_daemon_thread(trim_memory)

    async def stop(self) -> None:
        """Loads no more; requests that wait end with DrainingError."""
        if self._working is not None:
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        for waiting in self._queue:
            _end(waiting, DrainingError("shutting down"))

    async def _work(self) -> None:
        try:
            while self._queue:
                await self._serve(self._queue[0].wanted)
        finally:
            self._working = None

    async def _serve(self, wanted: Sequence[ServedModel]) -> None:
        """Loads models, and lets every request begin that needs no other ones."""
        try:
            async with self._lock:
                await self._bring(wanted)
                self._begin_all()
        except Exception as error:
            if not isinstance(error, ServiceError):  # otherwise every later request would wait in vain
                log.exception("keeper_failed")
                error = NotReadyError("the model cannot be loaded")
            for waiting in tuple(self._queue):
                if waiting.wanted == wanted:
                    self._queue.remove(waiting)
                    _end(waiting, error)

    async def _bring(self, wanted: Sequence[ServedModel]) -> None:
        """Loads those of the models that are absent and still served; raises NotReadyError if one cannot be loaded."""
        await self._make_room(wanted)
        for model in wanted:
            if model.presence is not Presence.ABSENT or self.models.find(model.name) is not model:
                continue
            try:
                changed = await self._loader.find_changed(model)
                await (self._loader.load(model) if changed is None else self._replace(changed))
            except BundleError as error:
                model.problem = str(error)
                log.warning("load_failed", model=model.name, problem=str(error))
                raise NotReadyError(f"{model.name}: the model cannot be loaded") from error

    def _begin_all(self) -> None:
        for waiting in tuple(self._queue):
            served = all(self.models.find(model.name) is model for model in waiting.wanted)
            if not served or all(model.presence is Presence.LOADED for model in waiting.wanted):
                self._queue.remove(waiting)
                if served and not waiting.begins.done():
                    for model in waiting.wanted:
                        waiting.uses.enter_context(model.uses)
                _end(waiting, served)

    async def _replace(self, found: FoundBundle) -> ServedModel:
        """Serves a bundle in place of the model with its name, and returns the new one; requires the lock."""
        model = None
        try:
            model = await self._loader.open(found)
            self._check_fits(model)
            # Models without requests leave; the limit may be exceeded.
            others = [item for item in self.models.present if item.name != model.name]
            leaving, _ = make_room(others, model.memory_bytes, self._limit_bytes)
            await self._evict_for_others([item for item in leaving if not item.uses.count])
            await self._loader.load(model)
        except BaseException:
            if self.models.find(found.name) is None:
                self._metrics.forget(found.name)
            raise
        replaced = self.models.find(found.name)
        self._metrics.keep(found.name, model.metrics)
        self.models.put(model)
        if replaced is not None:
            self.models.retire(replaced)
        return model

    async def _make_room(self, wanted: Sequence[ServedModel]) -> None:
        """Lets models leave so that others fit, after their requests; raises NotReadyError if that is not enough."""
        names = {model.name for model in wanted}
        others = [model for model in self.models.present if model.name not in names]
        needed_bytes = sum(model.memory_bytes for model in wanted if model.presence is not Presence.LOADED)
        leaving, fit = make_room(others, needed_bytes, self._limit_bytes)
        if not fit:
            raise NotReadyError(f"{', '.join(names)}: {needed_bytes} bytes, more than --memory-limit has for them")
        await self._evict_for_others([*leaving, *(model for model in wanted if model.presence is Presence.LEAVING)])

    async def _evict_for_others(self, models: Collection[ServedModel]) -> None:
        if models:
            await self._evict(models, "memory")
            await run_in_daemon_thread(return_memory)

    async def _evict(self, models: Collection[ServedModel], cause: EvictionCause) -> None:
        for model in models:
            if model.presence is Presence.LOADED:
                model.metrics.observe_eviction(cause)
                log.info("model_leaves", model=model.name, cause=cause)
        await asyncio.wait([model.leave() for model in models])

    def _check_fits(self, model: ServedModel) -> None:
        """Raises BundleError if a model never fits into the memory next to the pinned ones."""
        pinned = sum(item.memory_bytes for item in self.models if item.pinned and item.name != model.name)
        if pinned + model.memory_bytes > self._limit_bytes:
            problem = f"{self._limit_bytes:.0f} bytes in each process, expected {pinned + model.memory_bytes} or more"
            raise BundleError(f"{model.bundle.folder}: --memory-limit: {problem} with the pinned models")

    async def _leave_unused(self, model: ServedModel) -> None:
        """Lets a model leave that no request has needed yet, unless all models may stay."""
        if not model.pinned and (self._idle_seconds is not None or self._limit_bytes < math.inf):
            await model.leave()


def _end(waiting: _Waiting, result: bool | Exception) -> None:
    if waiting.begins.done():
        return
    if isinstance(result, bool):
        waiting.begins.set_result(result)
    else:
        waiting.begins.set_exception(result)
