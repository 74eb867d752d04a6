"""One version of a model on its way through the service: loaded, proven, used, and stopped when nobody uses it.

A model that is replaced lives on as two of these until the requests of the older one are answered. Made by
`serve.registry.loader`, held by `serve.registry.registry`.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import structlog

from serve.errors import ServiceError
from serve.registry.golden import GoldenMismatchError
from serve.registry.model_description import ModelDescription, describe
from serve.registry.pipeline import Pipeline
from serve.runtime.model import Model
from serve.side_thread import run_aside

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
        self.pipeline.start(await run_aside(load))
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
            readiness.proven = False
            try:
                await self.pipeline.warm_up()
            except (GoldenMismatchError, ServiceError) as error:
                log.warning("not ready", model=self.name, problem=str(error))
            except Exception:  # a watch that ends would leave the model out for ever
                log.exception("watching failed", model=self.name)
            if readiness.fault() is None:
                log.info("ready again", model=self.name)
