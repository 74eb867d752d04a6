"""The models that are served, by name.

Requests choose among them in one order: those with the fewest directions first, then by name, so that a model made for
one direction comes before one that knows many. Filled by `serve.app` and `serve.registry.reloader`; knows no protocol.

What clients are told of a served model: plain, frozen values that both interfaces write in their own form.

Made for `serve.registry.registry`. Knows neither protocol.

One version of a model on its way through the service: loaded, proven, used, and stopped when nobody uses it.

A model that is replaced lives on as two of these until the requests of the older one are answered. Made by
`serve.registry.loader`, held by `serve.registry.registry`.

Which model translates a request: one that has the direction, or two that lead there by way of a third language.

Pure functions of names and directions. Called by `serve.registry.dispatcher`; knows neither engines nor protocols.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

import structlog

from serve.bundle.manifest import BundleDirection
from serve.errors import InvalidRequestError, ModelNotFoundError, NotReadyError, ServiceError
from serve.registry.pipeline import GoldenMismatchError, Pipeline
from serve.runtime.model import Model
from serve.system import run_in_daemon_thread
from serve.translation.request import AskedDirection, choose_direction


class ModelState(StrEnum):
    """Whether a model translates now."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDirection:
    """What a model translates from and into, as ISO 639-1 codes."""

    source_language: str
    target_language: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLimits:
    """What a model and its settings allow.

    Attributes:
        max_source_tokens: the longest source, in tokens, with the end token.
        max_target_tokens: the longest translation, in tokens, without the end token.
        max_texts: texts in one request.
        max_text_characters: Unicode characters of one text.
        slots: rows of all engines together.
        engine_slots: rows of one engine: the largest beam.
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
    """A served model.

    Attributes:
        name: what requests call it.
        state: whether it translates now.
        directions: from what into what.
        precision: what it computes in.
        alignments: whether it tells where it looks.
        manifest_sha256: hash of the manifest of its bundle, which another bundle does not have.
        limits: what it allows.
    """

    name: str
    state: ModelState
    directions: tuple[ModelDirection, ...]
    precision: str
    alignments: bool
    manifest_sha256: str
    limits: ModelLimits


def describe(name: str, manifest_sha256: str, pipeline: Pipeline) -> ModelDescription:
    """Returns what is to be told of a model now."""
    manifest, settings = pipeline.manifest, pipeline.settings
    return ModelDescription(
        name=name,
        state=_state(pipeline),
        directions=tuple(
            ModelDirection(source_language=each.source, target_language=each.target) for each in manifest.directions
        ),
        precision=manifest.precision,
        alignments=settings.alignments,
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


# How often the engines' health is looked at.
WATCH_SECONDS = 0.5

log = structlog.get_logger("dragoman")


class ServedModel:
    """A pipeline, its name and who uses it. Belongs to the event loop's thread."""

    def __init__(self, name: str, manifest_sha256: str, pipeline: Pipeline) -> None:
        """Starts nothing.

        Args:
            name: what clients call the model.
            manifest_sha256: hash of the bundle's manifest.
            pipeline: not started.
        """
        self.name = name
        self.manifest_sha256 = manifest_sha256
        self.pipeline = pipeline
        self._users = 0
        self._unused = asyncio.Event()
        self._unused.set()
        self._watching: asyncio.Task[None] | None = None

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keeps the model from being stopped while the block runs."""
        self._users += 1
        self._unused.clear()
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._unused.set()

    async def start(self, load: Callable[[], Iterable[Model]]) -> None:
        """Loads the model and proves it: from then on it translates, and proves itself again after a failure.

        Args:
            load: returns a model for each engine; takes its time, in a thread of its own.

        Raises:
            BundleError: if it cannot be loaded.
            GoldenMismatchError: if a golden sentence comes out wrong.
            ServiceError: if an engine fails.
        """
        self.pipeline.start(await run_in_daemon_thread(load))
        await self.pipeline.warm_up()
        self._watching = asyncio.create_task(self._watch())

    async def wait_unused(self) -> None:
        """Waits until no request uses the model."""
        await self._unused.wait()

    async def stop(self) -> None:
        """Stops the engines; what still runs ends with DrainingError."""
        if self._watching is not None:
            self._watching.cancel()
        await asyncio.to_thread(self.pipeline.stop)

    def describe(self) -> ModelDescription:
        """Returns what clients are told of the model."""
        return describe(self.name, self.manifest_sha256, self.pipeline)

    async def _watch(self) -> None:
        """Follows a failure of the engines: no requests, until the golden sentences come out right again."""
        readiness = self.pipeline.readiness
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if readiness.ready:
                continue
            readiness.verified = False
            try:
                await self.pipeline.warm_up()
            except (GoldenMismatchError, ServiceError) as error:
                log.warning("not ready", model=self.name, problem=str(error))
            except Exception:  # a watch that ends would leave the model out for ever
                log.exception("watching failed", model=self.name)
            if readiness.fault() is None:
                log.info("ready again", model=self.name)


# What there is to choose from: the directions of each model, by name, in the order in which models are asked.
Offers = Mapping[str, Sequence[BundleDirection]]


@dataclass(frozen=True, slots=True)
class Hop:
    """One translation by one model."""

    model: str
    source: str
    target: str


def find_hop(asked: AskedDirection, offers: Offers) -> Hop:
    """Returns what translates directly: the model that is asked for, or the first that has the direction.

    Raises:
        ModelNotFoundError: if no model has the name that is asked for.
        InvalidRequestError: if there is no such direction, or there are several.
    """
    return _find_hop(asked.source_language, asked.target_language, _first_offers(asked.model, offers))


def find_route(asked: AskedDirection, offers: Offers) -> tuple[Hop, ...]:
    """Returns the legs of a request: one, or two if there is no direction and the client allows a pivot.

    Each leg is found as by `find_hop`: a named model does both. Of several pivots, the first in the order of the
    alphabet is taken.

    Raises:
        ModelNotFoundError: if no model has the name that is asked for.
        InvalidRequestError: if there is no such direction, or there are several.
    """
    source, target = asked.source_language, asked.target_language
    first_offers = _first_offers(asked.model, offers)
    try:
        return (_find_hop(source, target, first_offers),)
    except InvalidRequestError as error:
        pivot = _find_pivot(source, target, first_offers)
        if pivot is None:
            raise
        if not asked.allow_pivot:
            hint = f"{error.problem}; with allow_pivot, it would go by way of {pivot}"
            raise InvalidRequestError(error.field, hint) from error
    return tuple(_find_hop(*pair, first_offers) for pair in ((source, pivot), (pivot, target)))


def check_model(name: str, names: Mapping[str, object]) -> None:
    """Checks that there is a model of this name.

    Raises:
        ModelNotFoundError: naming those that there are.
    """
    if name not in names:
        raise ModelNotFoundError(f"model: {name[:64]!r}, expected one of {', '.join(names)}")


def _first_offers(model: str, offers: Offers) -> dict[tuple[str, str], tuple[str, BundleDirection]]:
    """Returns the first model that has each direction, and the direction as it knows it."""
    if model:
        check_model(model, offers)
        offers = {model: offers[model]}
    first: dict[tuple[str, str], tuple[str, BundleDirection]] = {}
    for name, directions in offers.items():
        for direction in directions:
            first.setdefault((direction.source, direction.target), (name, direction))
    return first


def _find_hop(source: str, target: str, first_offers: Mapping[tuple[str, str], tuple[str, BundleDirection]]) -> Hop:
    chosen = choose_direction([direction for _, direction in first_offers.values()], source, target)
    model, _ = first_offers[chosen.source, chosen.target]
    return Hop(model, chosen.source, chosen.target)


def _find_pivot(source: str, target: str, pairs: Collection[tuple[str, str]]) -> str | None:
    if source == target:  # a text is not translated into its own language
        return None
    into = {last for first, last in pairs if first == source}
    return min((first for first, last in pairs if last == target and first in into), default=None)


class ModelRegistry:
    """What is served now, and what is leaving. Belongs to the event loop's thread."""

    def __init__(self, models: Iterable[ServedModel]) -> None:
        """Holds the models, whether they are started or not."""
        self._served: dict[str, ServedModel] = {}
        self._offers: Offers = {}
        self._leaving: dict[ServedModel, asyncio.Task[None]] = {}
        for model in models:
            self.put(model)

    def __iter__(self) -> Iterator[ServedModel]:
        """Iterates in the order in which requests choose."""
        return iter(tuple(self._served.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all, in the order in which requests choose."""
        return tuple(self._served)

    @property
    def offers(self) -> Offers:
        """What there is to choose from."""
        return self._offers

    @property
    def hanging(self) -> bool:
        """True while any model hangs, also one that is leaving."""
        return any(served.pipeline.readiness.hanging for served in (*self, *self._leaving))

    def fault(self) -> NotReadyError | None:
        """Returns what keeps one of the models from translating; None: nothing does."""
        for served in self:
            if fault := served.pipeline.readiness.fault():
                return NotReadyError(f"{served.name}: {fault}")
        return None

    def refresh(self) -> None:
        """Brings the gauges of every model up to date."""
        for served in self:
            served.pipeline.refresh()

    def find(self, name: str) -> ServedModel | None:
        """Returns the model of this name; None: there is none."""
        return self._served.get(name)

    def get(self, name: str) -> ServedModel:
        """Returns the model of this name.

        Raises:
            ModelNotFoundError: if there is none.
        """
        check_model(name, self._served)
        return self._served[name]

    def describe(self) -> tuple[ModelDescription, ...]:
        """Returns what clients are told of all, in the order in which requests choose."""
        return tuple(served.describe() for served in self)

    def put(self, model: ServedModel) -> None:
        """Serves a model, and none of its name that was served before: `retire` that one."""
        served = [*(each for each in self if each.name != model.name), model]
        self._hold(served)
        model.pipeline.publish()

    def remove(self, name: str) -> None:
        """Serves the model no longer: `retire` it."""
        self._hold(each for each in self if each.name != name)

    def retire(self, model: ServedModel) -> asyncio.Task[None]:
        """Stops a model that gets no requests any more, as soon as those that it has are answered."""

        async def leave() -> None:
            await model.wait_unused()
            await model.stop()

        leaving = asyncio.create_task(leave())
        self._leaving[model] = leaving
        leaving.add_done_callback(lambda _: self._leaving.pop(model))
        return leaving

    async def wait_unused(self) -> None:
        """Waits until no request uses any model; the caller must let no new one in."""
        await asyncio.gather(*(model.wait_unused() for model in (*self, *self._leaving)))

    async def stop(self) -> None:
        """Stops every model at once; what still runs ends with DrainingError."""
        models = (*self, *self._leaving)
        for leaving in self._leaving.values():
            leaving.cancel()
        await asyncio.gather(*(model.stop() for model in models))

    def _hold(self, models: Iterable[ServedModel]) -> None:
        ordered = sorted(models, key=lambda each: (len(each.pipeline.manifest.directions), each.name))
        self._served = {each.name: each for each in ordered}
        self._offers = {each.name: each.pipeline.manifest.directions for each in ordered}
