"""Loads bundles into served models.

The served folder is one bundle, or holds one bundle per model in a subfolder with the model's name. The hash of its
manifest identifies a bundle, because the manifest holds the hashes of all other files.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.bundle import MANIFEST_FILE, Bundle, BundleError
from serve.errors import ServiceError
from serve.observability.metrics import ServiceMetrics
from serve.registry.pipeline import GoldenMismatchError, Pipeline
from serve.registry.registry import ServedModel
from serve.runtime.model import Model
from serve.settings import ServeSettings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# For a single bundle whose manifest has no name; opening the bundle then reports the problem.
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
    if not _NAME.fullmatch(path.name):
        raise BundleError(f"{path}: invalid name of a model, expected 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'")
    return path.name


def _find(name: str, path: Path) -> FoundBundle:
    try:
        manifest = (path / MANIFEST_FILE).read_bytes()
    except OSError as error:
        raise BundleError(f"{path / MANIFEST_FILE}: {error.strerror}") from error
    return FoundBundle(name, path, hashlib.sha256(manifest).hexdigest())


def _read_name(manifest: Path) -> str:
    try:
        name = json.loads(manifest.read_bytes())["name"]
    except (OSError, ValueError, TypeError, LookupError):
        return _UNNAMED
    return name if isinstance(name, str) else _UNNAMED


# Returns a model for each engine of a pipeline with these settings.
LoadModels = Callable[[ServeSettings, Bundle], Iterable[Model]]
# The errors of a bundle that cannot be served.
LOAD_ERRORS = (BundleError, GoldenMismatchError, OSError, ServiceError, TokenizerError)

log = structlog.get_logger("dragoman")


class ModelLoader:
    """Opens bundles and starts their models."""

    def __init__(self, settings: ServeSettings, metrics: ServiceMetrics, load_models: LoadModels) -> None:
        self._settings = settings
        self._metrics = metrics
        self._load_models = load_models
        self._folder = ModelFolder(settings.bundle)

    def find(self) -> tuple[FoundBundle, ...]:
        """Returns the current bundles.

        Raises:
            BundleError: as `ModelFolder.find`.
        """
        return self._folder.find()

    def open_all(self) -> list[ServedModel]:
        """Opens all bundles; the models are not loaded yet.

        Raises:
            BundleError: if a bundle is invalid.
            TokenizerError: if a tokenizer is invalid.
        """
        found = self.find()
        for name in self._settings.models.keys() - {each.name for each in found}:
            log.warning("unused_model_settings", model=name)
        return [self.open(each) for each in found]

    def open(self, found: FoundBundle) -> ServedModel:
        """Opens a bundle; the model is not loaded yet.

        Raises:
            BundleError: if the bundle is invalid or does not fit the device.
            TokenizerError: if its tokenizer is invalid.
        """
        bundle = Bundle.open(found.path)
        metrics = self._metrics.of_model(found.name)
        pipeline = Pipeline(settled(self._settings.of_model(found.name), bundle), bundle, metrics)
        return ServedModel(found.name, found.manifest_sha256, pipeline)

    async def start(self, model: ServedModel) -> None:
        """Loads and verifies an opened model, which then accepts requests.

        Raises:
            LOAD_ERRORS: if the model cannot be served; the caller stops its engines.
        """
        pipeline = model.pipeline
        await model.start(lambda: self._load_models(pipeline.settings, pipeline.bundle))


def settled(settings: ServeSettings, bundle: Bundle) -> ServeSettings:
    """Returns settings with a resolved device, and engines and slots that fit its memory.

    Raises:
        DeviceError: if the bundle cannot run on the device.
    """
    from serve.runtime.placement import place  # noqa: PLC0415 - importing the errors must not import ONNX Runtime

    placement = place(
        settings.device,
        bundle,
        engines=settings.engines,
        slots=settings.slots,
        memory_bytes=settings.device_memory_bytes,
    )
    return settings.model_copy(
        update={"device": placement.kind, "engines": placement.engines, "slots": placement.slots}
    )
