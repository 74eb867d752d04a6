"""The served models by name: their start, description and end. `dragoman.serve.registry.route` chooses among them.

Models are tried in a fixed order: fewest directions first, then by name, so that a bilingual model precedes a
multilingual one. A replaced model runs until its requests are answered, so two versions may coexist.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import structlog

from dragoman.serve.bundle.directions import start_tokens
from dragoman.serve.engine.engines import Models
from dragoman.serve.errors import NotReadyError, ServiceError
from dragoman.serve.host.system import run_in_daemon_thread
from dragoman.serve.registry.pipeline import GoldenMismatchError, Pipeline
from dragoman.serve.registry.route import Offers, check_model
from dragoman.serve.registry.uses import Uses


class ModelState(StrEnum):
    """The readiness of a model."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDirection:
    """A direction of a model."""

    source_language: str
    target_language: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """The limits of a model and its settings.

    Attributes:
        max_source_tokens: longest source, the end token included.
        max_target_tokens: longest translation, the end token excluded.
        max_texts: texts per request.
        max_text_characters: Unicode characters per text.
        slots: rows of all engines together.
        engine_slots: rows of one engine, which bound the beam size.
        queue_limit: rows that may wait.
    """

    max_source_tokens: int
    max_target_tokens: int
    max_texts: int
    max_text_characters: int
    slots: int
    engine_slots: int
    queue_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDescription:
    """The public description of a served model.

    Attributes:
        description: texts that the model is for; empty: unknown.
        directions: none if the model is multilingual.
        languages: of a multilingual model, which translates between any two of them; else none.
    """

    name: str
    description: str
    state: ModelState
    directions: tuple[ModelDirection, ...]
    languages: tuple[str, ...]
    precision: str
    alignments: bool
    manifest_sha256: str
    limits: ModelLimits


def describe(name: str, manifest_sha256: str, pipeline: Pipeline) -> ModelDescription:
    """Returns the current description of a model."""
    manifest, settings = pipeline.manifest, pipeline.settings
    return ModelDescription(
        name=name,
        description=manifest.description,
        state=_state(pipeline),
        directions=tuple(
            ModelDirection(source_language=direction.source, target_language=direction.target)
            for direction in manifest.directions
        ),
        languages=()
        if manifest.multilingual is None
        else tuple(language.language for language in manifest.multilingual.languages),
        precision=manifest.precision,
        alignments=bool(settings.alignments),
        manifest_sha256=manifest_sha256,
        limits=ModelLimits(
            max_source_tokens=manifest.max_source_tokens,
            max_target_tokens=manifest.max_target_tokens - start_tokens(manifest),
            max_texts=pipeline.limits.max_texts,
            max_text_characters=settings.max_text_characters,
            slots=settings.total_slots,
            engine_slots=settings.slots,
            queue_limit=settings.max_waiting,
        ),
    )


def _state(pipeline: Pipeline) -> ModelState:
    if pipeline.readiness.ready:
        return ModelState.READY
    return ModelState.LOADING if pipeline.readiness.healthy else ModelState.FAILED


# Interval between checks of the engines.
WATCH_SECONDS = 0.5

log = structlog.get_logger("dragoman")


class ServedModel:
    """A pipeline, its name and its requests. Not thread-safe: used in the event loop's thread.

    Attributes:
        uses: the requests that keep the model loaded.
    """

    def __init__(self, name: str, manifest_sha256: str, pipeline: Pipeline) -> None:
        self.name = name
        self.manifest_sha256 = manifest_sha256
        self.pipeline = pipeline
        self.uses = Uses()
        self._watching: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def start(self, load: Callable[[], Models]) -> None:
        """Loads and verifies the model; after a failure, it verifies itself again.

        Args:
            load: returns what the engines compute with; runs in a thread.

        Raises:
            BundleError: if loading fails.
            GoldenMismatchError: if a golden sentence differs.
            ServiceError: if an engine fails.
        """
        self.pipeline.start(await run_in_daemon_thread(load))
        await self.pipeline.warm_up()
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Stops the engines once, however often it is called; running requests end with DrainingError."""
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await asyncio.to_thread(self.pipeline.stop)
        self.pipeline.close()

    def describe(self) -> ModelDescription:
        """Returns the public description of the model."""
        return describe(self.name, self.manifest_sha256, self.pipeline)

    async def _watch(self) -> None:
        """After a failure of an engine, refuses requests until the golden sentences match again."""
        readiness = self.pipeline.readiness
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if readiness.ready:
                continue
            readiness.verified = False
            try:
                await self.pipeline.warm_up()
            except (GoldenMismatchError, ServiceError) as error:
                log.warning("not_ready", model=self.name, problem=str(error))
            except Exception:  # if the watch ended, the model would never recover
                log.exception("watch_failed", model=self.name)
            if readiness.fault() is None:
                log.info("ready_again", model=self.name)


class ModelRegistry:
    """The served models and the retiring ones. Not thread-safe: used in the event loop's thread."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        self._served: dict[str, ServedModel] = {}
        self._offers: Offers = {}
        self._leaving: dict[ServedModel, asyncio.Task[None]] = {}
        for model in models:
            self.put(model)

    def __iter__(self) -> Iterator[ServedModel]:
        """Iterates in the order in which models are tried."""
        return iter(tuple(self._served.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in the order in which models are tried."""
        return tuple(self._served)

    @property
    def offers(self) -> Offers:
        """The directions of each model."""
        return self._offers

    @property
    def hanging(self) -> bool:
        """True while any model hangs, retiring ones included."""
        return any(served.pipeline.readiness.hanging for served in (*self, *self._leaving))

    def fault(self) -> NotReadyError | None:
        """Returns the fault of the first model that is not ready; None: all are ready."""
        for served in self:
            if fault := served.pipeline.readiness.fault():
                return NotReadyError(f"{served.name}: {fault}")
        return None

    def refresh(self) -> None:
        """Updates the gauges of every model."""
        for served in self:
            served.pipeline.refresh()

    def find(self, name: str) -> ServedModel | None:
        """Returns the model of this name; None: not found."""
        return self._served.get(name)

    def get(self, name: str) -> ServedModel:
        """Returns the model of this name; raises ModelNotFoundError if there is none."""
        check_model(name, self._served)
        return self._served[name]

    def describe(self) -> tuple[ModelDescription, ...]:
        """Returns the public descriptions, in the order in which models are tried."""
        return tuple(served.describe() for served in self)

    def put(self, model: ServedModel) -> None:
        """Serves a model in place of one with the same name, which the caller must `retire`."""
        served = [*(item for item in self if item.name != model.name), model]
        self._hold(served)
        model.pipeline.publish()

    def remove(self, name: str) -> None:
        """Stops serving a model, which the caller must `retire`."""
        self._hold(item for item in self if item.name != name)

    def retire(self, model: ServedModel) -> asyncio.Task[None]:
        """Stops a model that gets no new requests, once its requests are answered."""

        async def leave() -> None:
            await model.uses.wait_none()
            await model.stop()

        leaving = asyncio.create_task(leave())
        self._leaving[model] = leaving
        leaving.add_done_callback(lambda _: self._leaving.pop(model))
        return leaving

    async def stop(self) -> None:
        """Stops all models at once; running requests end with DrainingError."""
        models = (*self, *self._leaving)
        for leaving in self._leaving.values():
            leaving.cancel()
        await asyncio.gather(*(model.stop() for model in models))

    def _hold(self, models: Iterable[ServedModel]) -> None:
        ordered = sorted(models, key=lambda model: (len(model.pipeline.directions), model.name))
        self._served = {item.name: item for item in ordered}
        self._offers = {item.name: item.pipeline.directions for item in ordered}
