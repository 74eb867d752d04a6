"""Opens a dispatcher in this process, without ports."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.registry.engine_models import load_engines
from dragoman.serve.registry.keeper import ModelKeeper
from dragoman.serve.registry.lifecycle import Lifecycle, Stage
from dragoman.serve.registry.loader import ModelLoader
from dragoman.serve.registry.registry import ModelRegistry
from dragoman.serve.settings import ServeSettings
from dragoman.serve.translation.large_work import LARGE_WORK


@asynccontextmanager
async def open_dispatcher(settings: ServeSettings) -> AsyncIterator[Dispatcher]:
    """Yields a dispatcher with ready models, for use in this process; opens no port.

    Raises BundleError if a bundle cannot be served with these settings.
    """
    LARGE_WORK.periods = 1
    metrics = ServiceMetrics()
    loader = ModelLoader(settings, metrics, load_engines, native=True)
    models = ModelRegistry(await loader.open_all())
    keeper, lifecycle = ModelKeeper(models, loader, settings, metrics), Lifecycle(metrics, models)
    try:
        await keeper.prove_all()
        lifecycle.enter(Stage.READY)
        yield Dispatcher(keeper, lifecycle, settings.request_timeout_seconds)
    finally:
        await keeper.stop()
        await models.stop()
