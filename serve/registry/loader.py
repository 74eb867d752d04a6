"""Loads bundles into served models.

The served folder is one bundle, or holds one bundle per model in a subfolder with the model's name. The hash of its
manifest identifies a bundle, because the manifest holds the hashes of all other files.

A bundle is hostile input: every failure, in any library, becomes a `BundleError`, and each part of a load has a time
limit. The code of a library cannot be stopped, so a load that exceeds the limit leaves threads behind.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from dragoman.model.tokenizer.tokenizer import TokenizerError
from dragoman.serve.bundle.bundle import MANIFEST_FILE, MAX_MANIFEST_BYTES, Bundle, BundleError
from dragoman.serve.bundle.files import FileStamp, read_json, sha256_of, stamp_of
from dragoman.serve.bundle.manifest import MODEL_NAMES, is_model_name
from dragoman.serve.engine.engine import ENGINE_THREAD
from dragoman.serve.engine.engines import Models
from dragoman.serve.engine.native.model import runs_natively
from dragoman.serve.errors import ServiceError
from dragoman.serve.host.system import SIDE_THREAD, run_in_daemon_thread
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.registry.pipeline import GoldenMismatchError
from dragoman.serve.registry.registry import ServedModel
from dragoman.serve.runtime.placement import host_memory_bytes, place
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
            _find(path.name, path)
            for path in sorted(self._path.iterdir())
            if (path / MANIFEST_FILE).is_file() and not path.name.startswith(".")
        )
        if not found:
            raise BundleError(
                f"{self._path}: no {MANIFEST_FILE} in it or in its subfolders, expected a bundle made by "
                "`dragoman export`, or a folder of bundles"
            )
        return found


def _find(name: str, path: Path) -> FoundBundle:
    if not is_model_name(name):
        raise BundleError(f"{path}: invalid name of a model, expected {MODEL_NAMES}")
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
# A load that exceeds its time limit may run, with its memory and its CPUs, until the process ends: a graph may loop for
# years. While so many run, no further one starts.
MAX_STUCK_LOADS = 2
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
        self._added: dict[str, Path] = {}
        self._failed_loads: list[frozenset[threading.Thread]] = []

    async def find(self) -> tuple[FoundBundle, ...]:
        """Returns the current bundles, added ones included; raises BundleError as `ModelFolder.find`."""
        return await self._in_thread(self._settings.bundle, self._find_all)

    async def add(self, name: str, path: Path) -> FoundBundle:
        """Returns a bundle outside of the served folder, which `find` finds from now on; raises BundleError."""
        found = await self._in_thread(path, partial(_find, name, path))
        self._added[name] = path
        return found

    def _find_all(self) -> tuple[FoundBundle, ...]:
        found = self._folder.find()
        known = {result.name for result in found}
        added = [_find(name, path) for name, path in self._added.items() if name not in known and path.exists()]
        return (*found, *added)

    async def open_all(self) -> list[ServedModel]:
        """Opens all bundles; the models are not loaded yet. Raises BundleError if a bundle is invalid."""
        found = await self.find()
        for name in self._settings.models.keys() - {result.name for result in found}:
            log.warning("unused_model_settings", model=name)
        return [await self.open(result) for result in found]

    async def open(self, found: FoundBundle) -> ServedModel:
        """Opens a bundle, without a load; raises BundleError if it is invalid or does not fit the device."""
        return await self._in_thread(found.path, partial(self._open, found))

    async def load(self, model: ServedModel) -> None:
        """Loads an absent model, and verifies it unless it was verified before; raises BundleError if that fails."""
        async with self._within_limit(model.bundle.folder):
            await model.load(lambda: self._load_models(model.settings, model.bundle))

    async def find_changed(self, model: ServedModel) -> FoundBundle | None:
        """Returns the bundle of a model if its files have changed, else None; raises BundleError if there is none."""
        folder = model.bundle.folder
        return await self._in_thread(
            folder, lambda: None if _stamp_of(folder) == model.stamp else _find(model.name, folder)
        )

    def _open(self, found: FoundBundle) -> ServedModel:
        stamp = _stamp_of(found.path)
        bundle = Bundle.open(found.path)
        metrics = self._metrics.of_model(found.name)
        settings = settled(self._settings.of_model(found.name), bundle)
        native = self._native and runs_natively(settings.device, bundle)
        name, sha256 = found.name, found.manifest_sha256
        memory_bytes = host_memory_bytes(bundle, settings.engine_count, settings.slots)
        return ServedModel(
            name, sha256, bundle, settings, metrics, stamp=stamp, memory_bytes=memory_bytes, native=native
        )

    async def _in_thread(self, path: Path, part: Callable[[], T]) -> T:
        async with self._within_limit(path):
            return await run_in_daemon_thread(part)

    @asynccontextmanager
    async def _within_limit(self, path: Path) -> AsyncIterator[None]:
        """Runs a part of a load; raises BundleError if the part fails or takes too long, or too many others are stuck.

        Remembers the threads that a failed part leaves behind: one part runs at a time, and only parts have such ones.
        """
        self._failed_loads = [load for load in self._failed_loads if any(thread.is_alive() for thread in load)]
        if len(self._failed_loads) >= MAX_STUCK_LOADS:
            raise BundleError(f"{MAX_STUCK_LOADS} earlier loads still run after their time limit: restart the server")
        before = load_threads()
        try:
            async with asyncio.timeout(self._settings.load_timeout_seconds):
                yield
        except BaseException as error:
            self._failed_loads.append(load_threads() - before)
            if isinstance(error, BundleError) or not isinstance(error, Exception):
                raise
            raise BundleError(f"{path}: {self._explain(error)}") from error

    def _explain(self, error: Exception) -> str:
        """Returns the problem of any error: libraries raise exceptions of any type for damaged files."""
        if isinstance(error, TimeoutError):
            return f"not loaded within --load-timeout-seconds: {self._settings.load_timeout_seconds:g}"
        kind = "" if isinstance(error, EXPLAINED_ERRORS) else f"cannot be loaded: {type(error).__name__}: "
        return f"{kind}{error}"


def _stamp_of(folder: Path) -> FileStamp:
    return stamp_of(sorted(folder.iterdir()))


def settled(settings: ServeSettings, bundle: Bundle) -> ServeSettings:
    """Returns settings with a resolved device, engines and slots that fit its memory, and whether there are alignments.

    Raises DeviceError if the bundle cannot run on the device.
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
