"""Loads bundles into served models.

The served folder is one bundle, or holds one bundle per model in a subfolder with the model's name. The hash of its
manifest identifies a bundle, because the manifest holds the hashes of all other files.

A bundle is hostile input: every failure, in any library, becomes a `BundleError`, and each part of a load has a time
limit. The code of a library cannot be stopped, so a load that exceeds the limit leaves threads behind.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from dragoman.model.tokenizer.tokenizer import TokenizerError
from dragoman.serve.bundle.bundle import MANIFEST_FILE, MAX_MANIFEST_BYTES, Bundle, BundleError
from dragoman.serve.bundle.files import read_json, sha256_of
from dragoman.serve.bundle.manifest import MODEL_NAMES, is_model_name
from dragoman.serve.engine.engine import ENGINE_THREAD
from dragoman.serve.engine.engines import Models
from dragoman.serve.engine.native.model import runs_natively
from dragoman.serve.errors import ServiceError
from dragoman.serve.host.system import SIDE_THREAD, run_in_daemon_thread
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.registry.pipeline import GoldenMismatchError, Pipeline
from dragoman.serve.registry.registry import ServedModel
from dragoman.serve.runtime.placement import place
from dragoman.serve.settings import ServeSettings

T = TypeVar("T")
# The name of a single bundle whose manifest has no valid one; opening the bundle then reports the problem.
_UNNAMED = "model"


@dataclass(frozen=True, slots=True)
class FoundBundle:
    """A bundle in the served folder, not opened yet."""

    name: str
    path: Path
    manifest_sha256: str


class ModelFolder:
    """The served folder: one bundle, or one bundle per subfolder."""

    def __init__(self, path: Path) -> None:
        """Reads the name of a single bundle; its model keeps this name if the bundle is replaced."""
        self._path = path
        self._lone_name = _read_name(path / MANIFEST_FILE) if (path / MANIFEST_FILE).is_file() else None

    def find(self) -> tuple[FoundBundle, ...]:
        """Returns the bundles, at least one, sorted by name.

        Skips subfolders without a manifest and those with a leading dot.

        Raises:
            BundleError: if there is no bundle, or a name is invalid for a model.
        """
        if self._lone_name is not None:
            return (_find(self._lone_name, self._path),)
        if not self._path.is_dir():
            raise BundleError(f"{self._path}: no such folder, expected a bundle made by `dragoman export`")
        found = tuple(
            _find(_check_name(path), path)
            for path in sorted(self._path.iterdir())
            if (path / MANIFEST_FILE).is_file() and not path.name.startswith(".")
        )
        if not found:
            raise BundleError(
                f"{self._path}: no {MANIFEST_FILE} in it or in its subfolders, expected a bundle made by "
                "`dragoman export`, or a folder of bundles"
            )
        return found


def _check_name(path: Path) -> str:
    if not is_model_name(path.name):
        raise BundleError(f"{path}: invalid name of a model, expected {MODEL_NAMES}")
    return path.name


def _find(name: str, path: Path) -> FoundBundle:
    try:
        return FoundBundle(name, path, sha256_of(path / MANIFEST_FILE))
    except OSError as error:
        raise BundleError(f"{path / MANIFEST_FILE}: {error.strerror}") from error


def _read_name(manifest: Path) -> str:
    try:
        content = read_json(manifest, MAX_MANIFEST_BYTES)
    except (OSError, ValueError):
        return _UNNAMED
    name = content.get("name") if isinstance(content, dict) else None
    return name if is_model_name(name) else _UNNAMED


# Returns what the engines of a pipeline with these settings compute with.
LoadModels = Callable[[ServeSettings, Bundle], Models]
# Their messages are complete without the name of their type.
EXPLAINED_ERRORS = (GoldenMismatchError, OSError, ServiceError, TokenizerError)

log = structlog.get_logger("dragoman")


def load_threads() -> frozenset[threading.Thread]:
    """Returns the threads that load models or compute with them."""
    return frozenset(item for item in threading.enumerate() if item.name in (ENGINE_THREAD, SIDE_THREAD))


class ModelLoader:
    """Opens bundles and starts their models, each part within the time limit."""

    def __init__(
        self, settings: ServeSettings, metrics: ServiceMetrics, load_models: LoadModels, *, native: bool = False
    ) -> None:
        """Opens nothing yet.

        Args:
            load_models: loads the graphs of a bundle.
            native: whether native engines run the bundles that they can run.
        """
        self._native = native
        self._settings = settings
        self._metrics = metrics
        self._load_models = load_models
        self._folder = ModelFolder(settings.bundle)

    async def find(self) -> tuple[FoundBundle, ...]:
        """Returns the current bundles; raises BundleError as `ModelFolder.find`."""
        return await self._within_limit(self._settings.bundle, run_in_daemon_thread(self._folder.find))

    async def open_all(self) -> list[ServedModel]:
        """Opens all bundles; the models are not loaded yet.

        Raises:
            BundleError: if a bundle is invalid.
        """
        found = await self.find()
        for name in self._settings.models.keys() - {result.name for result in found}:
            log.warning("unused_model_settings", model=name)
        return [await self.open(result) for result in found]

    async def open(self, found: FoundBundle) -> ServedModel:
        """Opens a bundle; the model is not loaded yet.

        Raises:
            BundleError: if the bundle is invalid or does not fit the device.
        """
        return await self._within_limit(found.path, run_in_daemon_thread(partial(self._open, found)))

    async def start(self, model: ServedModel) -> None:
        """Loads and verifies an opened model, which then accepts requests.

        Raises:
            BundleError: if the model cannot be served; the caller stops its engines.
        """
        pipeline = model.pipeline
        loading = model.start(lambda: self._load_models(pipeline.settings, pipeline.bundle))
        await self._within_limit(pipeline.bundle.folder, loading)

    def _open(self, found: FoundBundle) -> ServedModel:
        bundle = Bundle.open(found.path)
        metrics = self._metrics.of_model(found.name)
        settings = settled(self._settings.of_model(found.name), bundle)
        pipeline = Pipeline(settings, bundle, metrics, native=self._native and runs_natively(settings.device, bundle))
        return ServedModel(found.name, found.manifest_sha256, pipeline)

    async def _within_limit(self, path: Path, loading: Awaitable[T]) -> T:
        """Waits for a part of a load; raises BundleError if the part fails or takes too long."""
        limit_seconds = self._settings.load_timeout_seconds
        try:
            async with asyncio.timeout(limit_seconds) as limit:
                return await loading
        except BundleError:
            raise
        except EXPLAINED_ERRORS as error:
            if limit.expired():
                raise BundleError(f"{path}: not loaded within --load-timeout-seconds: {limit_seconds:g}") from error
            raise BundleError(f"{path}: {error}") from error
        except Exception as error:  # libraries raise exceptions of any type for damaged files
            raise BundleError(f"{path}: cannot be loaded: {type(error).__name__}: {error}") from error


def settled(settings: ServeSettings, bundle: Bundle) -> ServeSettings:
    """Returns settings with a resolved device, engines and slots that fit its memory, and whether there are alignments.

    Raises:
        DeviceError: if the bundle cannot run on the device.
    """
    placement = place(
        settings.device,
        bundle,
        engines=settings.engines,
        slots=settings.slots,
        memory_bytes=settings.device_memory_bytes,
    )
    aligned = bool(bundle.manifest.alignment_heads) if settings.alignments is None else settings.alignments
    return settings.model_copy(
        update={"device": placement.kind, "engines": placement.engines, "slots": placement.slots, "alignments": aligned}
    )
