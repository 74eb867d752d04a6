"""The served models by name: their start, description and end. `dragoman.serve.registry.route` chooses among them.

Models are tried in a fixed order: fewest directions first, then by name, so that a bilingual model precedes a
multilingual one. A replaced model runs until its requests are answered, so two versions may coexist.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum, auto

import structlog

from dragoman.serve.bundle.bundle import WEIGHTS_FILE, Bundle
from dragoman.serve.bundle.directions import Directions, ListedDirections, directions_of, start_tokens
from dragoman.serve.bundle.files import FileStamp
from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.engine.engines import Models
from dragoman.serve.errors import NotReadyError, ServiceError
from dragoman.serve.host.system import run_in_daemon_thread
from dragoman.serve.observability.metrics import Metrics
from dragoman.serve.registry.description import (
    AvailableModel,
    ModelDescription,
    ModelDirection,
    ModelLimits,
    ModelList,
    ModelState,
)
from dragoman.serve.registry.pipeline import GoldenMismatchError, Pipeline
from dragoman.serve.registry.route import Offers, Routes, check_model
from dragoman.serve.settings import ServeSettings
from dragoman.serve.translation.request import TextLimits


class Uses:
    """The running blocks of a context manager that may be entered many times.

    Not thread-safe: used in the event loop's thread.

    Attributes:
        count: how many blocks run.
        last_seconds: when the last one ended, on the monotonic clock; 0: none has.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last_seconds = 0.0
        self._none = asyncio.Event()

    def __enter__(self) -> None:
        """Begins a use, which ends with the block."""
        self.count += 1

    def __exit__(self, *_: object) -> None:
        self.count -= 1
        if not self.count:
            self.last_seconds = time.monotonic()
            self._none.set()

    async def __aenter__(self) -> None:
        self.__enter__()

    async def __aexit__(self, *ended: object) -> None:
        self.__exit__(*ended)

    async def wait_none(self) -> None:
        """Waits until nothing uses the thing; a use may begin again and again meanwhile."""
        while self.count:
            self._none.clear()
            await self._none.wait()


# Interval between checks of the engines.
WATCH_SECONDS = 0.5

log = structlog.get_logger("dragoman")


class Presence(Enum):
    """Whether a model is in memory."""

    ABSENT = auto()
    LOADING = auto()
    LOADED = auto()
    LEAVING = auto()


class ServedModel:
    """A model by name, with its bundle, its settings and its requests, and with a pipeline while it is in memory.

    ABSENT, LOADING, LOADED, LEAVING, then ABSENT again. A load that fails ends ABSENT. Requests begin while the model
    is LOADED; one that is LEAVING finishes those that it has. Not thread-safe: used in the event loop's thread.

    Attributes:
        metrics: those of all versions of the model.
        stamp: of the files of the bundle, from before their hashes were computed.
        memory_bytes: what the model takes while it is loaded, an estimate.
        uses: the requests that keep the model loaded.
        pipeline: None while the model is ABSENT.
        problem: why the last load failed; None: it did not.
        proven: whether the golden sentences have matched in this process.
        kept: whether the model stays because its files on the disk are others, which cannot be served.
    """

    def __init__(
        self,
        name: str,
        manifest_sha256: str,
        bundle: Bundle,
        settings: ServeSettings,
        metrics: Metrics,
        *,
        stamp: FileStamp,
        memory_bytes: int,
        native: bool,
    ) -> None:
        self.name = name
        self.manifest_sha256 = manifest_sha256
        self.bundle = bundle
        self.settings = settings
        self.metrics = metrics
        self.stamp = stamp
        self.directions = directions_of(bundle.manifest)
        self.memory_bytes = memory_bytes
        self.uses = Uses()
        self.presence = Presence.ABSENT
        self.pipeline: Pipeline | None = None
        self.problem: str | None = None
        self.proven = False
        self.kept = False
        self._native = native
        self._watching: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    @property
    def max_texts(self) -> int:
        """Texts per request."""
        return min(self.settings.max_texts, self.settings.total_slots + self.settings.max_waiting)

    @property
    def pinned(self) -> bool:
        """Whether the model stays in memory: as configured, or because it would not come back."""
        return self.settings.pinned or self.kept or (self.pipeline is not None and not self.pipeline.readiness.ready)

    async def load(self, load: Callable[[], Models]) -> None:
        """Loads an absent model by a function that runs in a thread, and verifies it unless it was verified before.

        Raises, besides the errors of the function:
            GoldenMismatchError: if a golden sentence differs.
            ServiceError: if an engine fails.
        """

        def build() -> tuple[Pipeline, Models]:
            return Pipeline(self.settings, self.bundle, self.metrics, native=self._native), load()

        began_seconds = time.monotonic()
        self.presence, self.problem = Presence.LOADING, None
        try:
            pipeline, models = await run_in_daemon_thread(build)
            self.pipeline = pipeline
            pipeline.start(models)
            if self.proven:
                pipeline.readiness.verified = True
            else:
                await pipeline.warm_up()
        except BaseException as error:
            self.problem = str(error)
            self.metrics.observe_load(None)
            await self.stop()
            raise
        self.proven, self.presence, self.uses.last_seconds = True, Presence.LOADED, time.monotonic()
        self.metrics.observe_load(time.monotonic() - began_seconds)
        self.metrics.memory.inc(self.memory_bytes)
        self._watching = asyncio.create_task(self._watch(pipeline))

    def leave(self) -> asyncio.Task[None]:
        """Begins no more requests, and stops once those that the model has are answered."""
        if self._leaving is None:
            if self.presence is Presence.LOADED:
                self.presence = Presence.LEAVING
                self.metrics.memory.inc(-self.memory_bytes)
            self._leaving = asyncio.create_task(self._leave())
        return self._leaving

    async def _leave(self) -> None:
        try:
            await self.uses.wait_none()
            await self.stop()
        finally:
            self._leaving = None

    async def stop(self) -> None:
        """Stops the engines once, however often it is called; running requests end with DrainingError."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        if self.pipeline is not None:
            await asyncio.to_thread(self.pipeline.stop)
            self.pipeline.close()
        if self.presence is Presence.LOADED:
            self.metrics.memory.inc(-self.memory_bytes)
        self.pipeline, self.presence, self._stopping = None, Presence.ABSENT, None

    def fault(self) -> NotReadyError | None:
        """Returns why the model would not translate a request, if need be after it is loaded; None: it would."""
        if self.pipeline is not None and self.presence is not Presence.LOADING:
            return self.pipeline.readiness.fault()
        if self.problem is not None:
            return NotReadyError("the model cannot be loaded")
        return None if self.proven else NotReadyError("warming up")

    def refresh(self) -> None:
        """Updates the gauges."""
        if self.pipeline is not None:
            self.pipeline.refresh()
        self.metrics.ready.set(self.fault() is None)

    def publish(self) -> None:
        """Exports the limits and the description of the model as metrics."""
        manifest = self.bundle.manifest
        self.metrics.set_limits(self.settings.total_slots, self.settings.max_waiting)
        self.metrics.set_info(
            {
                "directions": ",".join(self.directions.summary()),
                "precision": manifest.precision,
                "opset": str(manifest.opset),
                "weights_sha256": manifest.files[WEIGHTS_FILE],
            }
        )

    @property
    def state(self) -> ModelState:
        """The readiness of the model."""
        if self.presence is Presence.LOADED and self.pipeline is not None:
            readiness = self.pipeline.readiness
            if readiness.ready:
                return ModelState.READY
            return ModelState.LOADING if readiness.healthy else ModelState.FAILED
        if self.problem is not None:
            return ModelState.FAILED
        return ModelState.UNLOADED if self.proven and self.presence is not Presence.LOADING else ModelState.LOADING

    def describe(self) -> ModelDescription:
        """Returns the public description of the model."""
        manifest, settings = self.bundle.manifest, self.settings
        several = manifest.multilingual
        return ModelDescription(
            name=self.name,
            description=manifest.description,
            state=self.state,
            directions=tuple(
                ModelDirection(source_language=direction.source, target_language=direction.target)
                for direction in manifest.directions
            ),
            languages=() if several is None else tuple(language.language for language in several.languages),
            precision=manifest.precision,
            alignments=bool(settings.alignments),
            manifest_sha256=self.manifest_sha256,
            limits=ModelLimits(
                max_source_tokens=manifest.max_source_tokens,
                max_target_tokens=manifest.max_target_tokens - start_tokens(manifest),
                max_texts=self.max_texts,
                max_text_characters=settings.max_text_characters,
                slots=settings.total_slots,
                engine_slots=settings.slots,
                queue_limit=settings.max_waiting,
            ),
        )

    async def _watch(self, pipeline: Pipeline) -> None:
        """After a failure of an engine, refuses requests until the golden sentences match again."""
        readiness = pipeline.readiness
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if readiness.ready:
                continue
            readiness.verified = False
            try:
                await pipeline.warm_up()
            except (GoldenMismatchError, ServiceError) as error:
                log.warning("not_ready", model=self.name, problem=str(error))
            except Exception:  # if the watch ended, the model would never recover
                log.exception("watch_failed", model=self.name)
            if readiness.fault() is None:
                log.info("ready_again", model=self.name)


class ModelRegistry:
    """The served models and the retiring ones. Not thread-safe: used in the event loop's thread.

    Attributes:
        offers: the directions of each model, also of those that are fetched on demand.
        routes: those of requests among all models.
    """

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self._served: dict[str, ServedModel] = {}
        self.offers: Offers = {}
        self.routes = Routes({})
        self._leaving: dict[ServedModel, asyncio.Task[None]] = {}
        self._available: Mapping[str, AvailableModel] = {}
        self._named: Collection[str] = ()
        for model in models:
            self.put(model)

    def __iter__(self) -> Iterator[ServedModel]:
        """Iterates in the order in which models are tried."""
        return iter(tuple(self._served.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which models are tried."""
        return tuple(self._served)

    def offer(self, available: Mapping[str, AvailableModel], named: Collection[str]) -> None:
        """Routes requests also to models that are not served yet; `named` ones may have directions of served ones."""
        self._available, self._named = available, named
        self._hold(self)

    @property
    def text_limits(self) -> TextLimits:
        """Limits that refuse only what each model refuses."""
        return TextLimits(
            max_texts=max(model.max_texts for model in self),
            max_text_characters=max(model.settings.max_text_characters for model in self),
        )

    @property
    def rows(self) -> tuple[int, int]:
        """The rows of all models that may run, and those that may run or wait; also of models that are absent."""
        slots = sum(served.settings.total_slots for served in self)
        return slots, slots + sum(served.settings.max_waiting for served in self)

    @property
    def present(self) -> tuple[ServedModel, ...]:
        """The models in memory, retiring ones included."""
        return tuple(served for served in (*self, *self._leaving) if served.pipeline is not None)

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        """The pipelines of the models that take requests and are in memory."""
        return tuple(served.pipeline for served in self if served.pipeline is not None)

    @property
    def hanging(self) -> bool:
        """True while any model hangs, retiring ones included."""
        return any(served.pipeline is not None and served.pipeline.readiness.hanging for served in self.present)

    def fault(self) -> NotReadyError | None:
        """Returns the fault of the first model that is not ready; None: all are ready.

        A model that could not be loaded again is no fault of the service: its next request tries again.
        """
        for served in self:
            if (served.pipeline is not None or not served.proven) and (fault := served.fault()):
                return NotReadyError(f"{served.name}: {fault}")
        return None

    def refresh(self) -> None:
        """Updates the gauges of every model."""
        for served in self:
            served.refresh()

    def find(self, name: str) -> ServedModel | None:
        """Returns the model of this name; None: not found."""
        return self._served.get(name)

    def get(self, name: str) -> ServedModel:
        """Returns the model of this name; raises ModelNotFoundError if there is none."""
        check_model(name, self._served)
        return self._served[name]

    def describe(self) -> ModelList:
        """Returns the public descriptions, in the order in which models are tried."""
        absent = (model for name, model in self._available.items() if name in self.offers and name not in self._served)
        return ModelList(models=tuple(served.describe() for served in self), available=tuple(absent))

    def put(self, model: ServedModel) -> None:
        """Serves a model in place of one with the same name, which the caller must `retire`."""
        served = [*(item for item in self if item.name != model.name), model]
        self._hold(served)
        model.publish()

    def remove(self, name: str) -> None:
        """Stops serving a model, which the caller must `retire`."""
        self._hold(item for item in self if item.name != name)

    def retire(self, model: ServedModel) -> asyncio.Task[None]:
        """Stops a model that gets no new requests, once its requests are answered."""
        leaving = self._leaving[model] = model.leave()
        leaving.add_done_callback(lambda _: self._leaving.pop(model, None))
        return leaving

    async def stop(self) -> None:
        """Stops all models at once; running requests end with DrainingError."""
        models = (*self, *self._leaving)
        for leaving in self._leaving.values():
            leaving.cancel()
        await asyncio.gather(*(model.stop() for model in models))

    def _hold(self, models: Iterable[ServedModel]) -> None:
        ordered = sorted(models, key=lambda model: (len(model.directions), model.name))
        self._served = {item.name: item for item in ordered}
        offers: dict[str, Directions] = {item.name: item.directions for item in ordered}
        known = [directions for name, directions in offers.items() if name not in self._available]
        for name, model in self._available.items():
            pair = model.source_language, model.target_language
            if name not in offers and (name in self._named or not any(item.find(*pair) for item in known)):
                offers[name] = ListedDirections([BundleDirection(source=pair[0], target=pair[1])])
        self.offers = dict(sorted(offers.items(), key=lambda item: (len(item[1]), item[0])))
        self.routes = Routes(self.offers)
