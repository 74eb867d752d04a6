"""The served models by name, and the choice of models for a request.

Models are tried in a fixed order: fewest directions first, then by name, so that a bilingual model precedes a
multilingual one. A replaced model runs until its requests are answered, so two versions may coexist. A route is one
model with the direction, or two models with a pivot language.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import structlog

from serve.bundle.manifest import BundleDirection
from serve.engine.engines import Models
from serve.errors import InvalidRequestError, ModelNotFoundError, NotReadyError, ServiceError
from serve.registry.pipeline import GoldenMismatchError, Pipeline
from serve.system import run_in_daemon_thread
from serve.translation.request import ScoreRequest, TranslateRequest


class ModelState(StrEnum):
    """The readiness of a model."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDirection:
    """A direction of a model, as ISO 639-1 codes."""

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
    """The public description of a served model."""

    name: str
    state: ModelState
    directions: tuple[ModelDirection, ...]
    precision: str
    alignments: bool
    manifest_sha256: str
    limits: ModelLimits


def describe(name: str, manifest_sha256: str, pipeline: Pipeline) -> ModelDescription:
    """Returns the current description of a model."""
    manifest, settings = pipeline.manifest, pipeline.settings
    return ModelDescription(
        name=name,
        state=_state(pipeline),
        directions=tuple(
            ModelDirection(source_language=each.source, target_language=each.target) for each in manifest.directions
        ),
        precision=manifest.precision,
        alignments=bool(settings.alignments),
        manifest_sha256=manifest_sha256,
        limits=ModelLimits(
            max_source_tokens=manifest.max_source_tokens,
            max_target_tokens=manifest.max_target_tokens,
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
    """A pipeline, its name and its count of requests. Not thread-safe: used in the event loop's thread."""

    def __init__(self, name: str, manifest_sha256: str, pipeline: Pipeline) -> None:
        self.name = name
        self.manifest_sha256 = manifest_sha256
        self.pipeline = pipeline
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._watching: asyncio.Task[None] | None = None

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keeps the model loaded while the block runs."""
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

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

    async def wait_unused(self) -> None:
        """Waits until no request uses the model."""
        await self._unused.wait()

    async def stop(self) -> None:
        """Stops the engines; running requests end with DrainingError."""
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


# The directions of each model by name, in the order in which models are tried.
Offers = Mapping[str, Sequence[BundleDirection]]


@dataclass(frozen=True, slots=True)
class Hop:
    """One translation by one model, in a direction of that model."""

    model: str
    direction: BundleDirection


def find_hop(request: TranslateRequest | ScoreRequest, offers: Offers) -> Hop:
    """Returns the direct translation: by the named model, or by the first model that has the direction.

    Raises:
        ModelNotFoundError: if no model has the name.
        InvalidRequestError: if no direction or several match.
    """
    return _find_hop(request.source_language, request.target_language, _first_offers(request.model, offers))


def find_route(request: TranslateRequest, offers: Offers) -> tuple[Hop, ...]:
    """Returns one hop, or two if no model has the direction and the client allows a pivot.

    Each hop is chosen as by `find_hop`; a named model makes both. The alphabetically first possible pivot is used.

    Raises:
        ModelNotFoundError: if no model has the name.
        InvalidRequestError: if no direction or several match.
    """
    source, target = request.source_language, request.target_language
    first_offers = _first_offers(request.model, offers)
    try:
        return (_find_hop(source, target, first_offers),)
    except InvalidRequestError as error:
        pivot = _find_pivot(source, target, first_offers)
        if pivot is None:
            raise
        if not request.allow_pivot:
            hint = f"{error.problem}; allow_pivot would translate through {pivot}"
            raise InvalidRequestError(error.field, hint) from error
    return tuple(_find_hop(*pair, first_offers) for pair in ((source, pivot), (pivot, target)))


def find_sources(request: TranslateRequest, offers: Offers) -> tuple[str, tuple[str, ...]]:
    """Returns the target, and the codes of languages that are translated into it, in alphabetical order.

    Raises:
        ModelNotFoundError: if no model has the name.
        InvalidRequestError: if no target or several match.
    """
    pairs = _first_offers(request.model, offers)
    targets = {target for _, target in pairs}
    target = request.target_language or (min(targets) if len(targets) == 1 else "")

    def leads_to_target(source: str) -> bool:
        return (source, target) in pairs or (request.allow_pivot and _find_pivot(source, target, pairs) is not None)

    sources = tuple(sorted({source for source, _ in pairs if source != target and leads_to_target(source)}))
    if not sources:
        raise _wrong_language("target", target, [hop.direction for hop in pairs.values()])
    return target, sources


def choose_direction(directions: Sequence[BundleDirection], source: str, target: str) -> BundleDirection:
    """Returns the direction from `source` into `target`; each may be empty where it is unambiguous.

    With several directions, only the source may be empty, and only if a single direction has the target.

    Raises:
        InvalidRequestError: if no direction or several match.
    """
    into = [direction for direction in directions if target in ("", direction.target)]
    if not into or (not target and len(directions) > 1):
        raise _wrong_language("target", target, directions)
    matching = [direction for direction in into if source in ("", direction.source)]
    if len(matching) != 1:
        raise _wrong_language("source", source, into)
    return matching[0]


def _wrong_language(side: str, language: str, directions: Sequence[BundleDirection]) -> InvalidRequestError:
    expected = ", ".join(map(str, directions))
    return InvalidRequestError(f"{side}_language", f"{language[:20]!r}, expected the {side} of one of {expected}")


def check_model(name: str, names: Mapping[str, object]) -> None:
    """Checks that a model has this name.

    Raises:
        ModelNotFoundError: with the existing names.
    """
    if name not in names:
        raise ModelNotFoundError(f"model: {name[:64]!r}, expected one of {', '.join(names)}")


def _first_offers(model: str, offers: Offers) -> dict[tuple[str, str], Hop]:
    """Returns for each language pair the hop by the first model with the direction."""
    if model:
        check_model(model, offers)
        offers = {model: offers[model]}
    first: dict[tuple[str, str], Hop] = {}
    for name, directions in offers.items():
        for direction in directions:
            first.setdefault((direction.source, direction.target), Hop(name, direction))
    return first


def _find_hop(source: str, target: str, first_offers: Mapping[tuple[str, str], Hop]) -> Hop:
    chosen = choose_direction([hop.direction for hop in first_offers.values()], source, target)
    return first_offers[chosen.source, chosen.target]


def _find_pivot(source: str, target: str, pairs: Collection[tuple[str, str]]) -> str | None:
    if source == target:  # a text is not translated into its own language
        return None
    into = {last for first, last in pairs if first == source}
    return min((first for first, last in pairs if last == target and first in into), default=None)


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
        """Returns the model of this name.

        Raises:
            ModelNotFoundError: if there is none.
        """
        check_model(name, self._served)
        return self._served[name]

    def describe(self) -> tuple[ModelDescription, ...]:
        """Returns the public descriptions, in the order in which models are tried."""
        return tuple(served.describe() for served in self)

    def put(self, model: ServedModel) -> None:
        """Serves a model in place of one with the same name, which the caller must `retire`."""
        served = [*(each for each in self if each.name != model.name), model]
        self._hold(served)
        model.pipeline.publish()

    def remove(self, name: str) -> None:
        """Stops serving a model, which the caller must `retire`."""
        self._hold(each for each in self if each.name != name)

    def retire(self, model: ServedModel) -> asyncio.Task[None]:
        """Stops a model that gets no new requests, once its requests are answered."""

        async def leave() -> None:
            await model.wait_unused()
            await model.stop()

        leaving = asyncio.create_task(leave())
        self._leaving[model] = leaving
        leaving.add_done_callback(lambda _: self._leaving.pop(model))
        return leaving

    async def wait_unused(self) -> None:
        """Waits until no request uses any model; the caller must not admit new ones."""
        await asyncio.gather(*(model.wait_unused() for model in (*self, *self._leaving)))

    async def stop(self) -> None:
        """Stops all models at once; running requests end with DrainingError."""
        models = (*self, *self._leaving)
        for leaving in self._leaving.values():
            leaving.cancel()
        await asyncio.gather(*(model.stop() for model in models))

    def _hold(self, models: Iterable[ServedModel]) -> None:
        ordered = sorted(models, key=lambda each: (len(each.pipeline.manifest.directions), each.name))
        self._served = {each.name: each for each in ordered}
        self._offers = {each.name: each.pipeline.manifest.directions for each in ordered}
