"""From a bundle that lies in the folder to a model that is served: opened, loaded and proven.

Called by `serve.app` when the service starts and by `serve.registry.reloader` while it serves.
"""

from collections.abc import Callable, Iterable

import structlog

from model.tokenizer.tokenizer import TokenizerError
from serve.bundle.bundle import Bundle, BundleError
from serve.errors import ServiceError
from serve.observability.service_metrics import ServiceMetrics
from serve.registry.golden import GoldenMismatchError
from serve.registry.model_folder import FoundBundle, ModelFolder
from serve.registry.pipeline import Pipeline
from serve.registry.served_model import ServedModel
from serve.runtime.model import Model
from serve.settings import ServeSettings

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
