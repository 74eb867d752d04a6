"""From a bundle that lies in the folder to a model that is served: opened, loaded and proven.

Called by `serve.app` when the service starts and by `serve.registry.reloader` while it serves.

The folder that is served: one bundle, or a folder of bundles, each named as its model is.

Tells what lies there now, and by the hash of its manifest whether a bundle is another one than before. Opens no bundle.

What the engines of a served model compute with, on the CPU or on GPUs. Called by `serve.registry.loader`.
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
# The name of a lone bundle whose manifest does not tell one; opening it will say what is wrong.
_UNNAMED = "model"


@dataclass(frozen=True, slots=True)
class FoundBundle:
    """A bundle as it lies there.

    Attributes:
        name: of the model.
        path: its folder.
        manifest_sha256: differs if anything in the bundle does, since the manifest holds the hash of every other file.
    """

    name: str
    path: Path
    manifest_sha256: str


class ModelFolder:
    """What is served."""

    def __init__(self, path: Path) -> None:
        """Keeps the path and looks whether it is a bundle, whose model then keeps its name whatever replaces it."""
        self._path = path
        self._lone_name = _read_name(path / MANIFEST_FILE) if (path / MANIFEST_FILE).is_file() else None

    def find(self) -> tuple[FoundBundle, ...]:
        """Returns the bundles that there are, at least one, in the order of their names.

        A subfolder without a manifest is none, nor is one whose name begins with a dot.

        Raises:
            BundleError: if there is none, or a name is not fit for a model.
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
                f"{self._path}: neither {MANIFEST_FILE} nor a folder that holds one: expected a bundle made by "
                "`dragoman export`, or a folder of bundles"
            )
        return found


def _check_name(path: Path) -> str:
    if not _NAME.fullmatch(path.name):
        raise BundleError(f"{path}: expected 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-' as the name of a model")
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
# What keeps a bundle from being served.
LOAD_ERRORS = (BundleError, GoldenMismatchError, OSError, ServiceError, TokenizerError)

log = structlog.get_logger("dragoman")


class ModelLoader:
    """Makes served models."""

    def __init__(self, settings: ServeSettings, metrics: ServiceMetrics, load_models: LoadModels) -> None:
        """Keeps what it needs and looks at the folder once.

        Args:
            settings: of the service.
            metrics: where the metrics of the models come from.
            load_models: loads the graphs.
        """
        self._settings = settings
        self._metrics = metrics
        self._load_models = load_models
        self._folder = ModelFolder(settings.bundle)

    def find(self) -> tuple[FoundBundle, ...]:
        """Returns the bundles that there are now.

        Raises:
            BundleError: if they are not fit to be served.
        """
        return self._folder.find()

    def open_all(self) -> list[ServedModel]:
        """Opens every bundle that there is; the models are not loaded yet.

        Raises:
            BundleError: if one is not what its manifest says.
            TokenizerError: if the tokenizer of one is none.
        """
        found = self.find()
        for name in self._settings.models.keys() - {each.name for each in found}:
            log.warning("settings of a model that there is not", model=name)
        return [self.open(each) for each in found]

    def open(self, found: FoundBundle) -> ServedModel:
        """Opens a bundle; the model is not loaded yet.

        Raises:
            BundleError: if the bundle is not what its manifest says, or cannot be computed where it is to be.
            TokenizerError: if its tokenizer is none.
        """
        bundle = Bundle.open(found.path)
        metrics = self._metrics.of_model(found.name)
        pipeline = Pipeline(settled(self._settings.of_model(found.name), bundle), bundle, metrics)
        return ServedModel(found.name, found.manifest_sha256, pipeline)

    async def start(self, model: ServedModel) -> None:
        """Loads and proves an opened model, which may take requests from then on.

        Raises:
            LOAD_ERRORS: if it may not; its engines are left to be stopped.
        """
        pipeline = model.pipeline
        await model.start(lambda: self._load_models(pipeline.settings, pipeline.bundle))


def settled(settings: ServeSettings, bundle: Bundle) -> ServeSettings:
    """Returns settings with the device that they lead to, and what its memory makes of the engines and slots.

    Raises:
        DeviceError: if the bundle cannot be computed where it is to be.
    """
    from serve.runtime.placement import place  # noqa: PLC0415 - who only names our errors needs no ONNX Runtime

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
