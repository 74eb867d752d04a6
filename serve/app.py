"""The composition root: builds the service and what it serves, starts it, and stops it when a signal comes.

Nothing else constructs services.
"""

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import structlog

from serve.api.server import ListenError
from serve.engine.engine import ENGINE_THREAD
from serve.files import FileError
from serve.observability.logs import configure_logs
from serve.observability.metrics import ServiceMetrics
from serve.observability.traces import configure_traces, stop_traces
from serve.registry.dispatcher import Dispatcher
from serve.registry.engine_models import load_models
from serve.registry.lifecycle import Lifecycle, Stage
from serve.registry.loader import LOAD_ERRORS, LoadModels, ModelLoader
from serve.registry.registry import ModelRegistry
from serve.service import Service
from serve.settings import ServeSettings
from serve.system import SIDE_THREAD, run_in_daemon_thread, trim_memory

log = structlog.get_logger("dragoman")


def configure_logs_and_traces(settings: ServeSettings) -> None:
    """Sends logs and traces of this process where the settings say.

    Raises:
        SystemExit: if traces are wanted and cannot be had.
    """
    configure_logs(settings.log_format, texts=settings.log_texts)
    if settings.trace_endpoint is not None:
        try:
            configure_traces(settings.trace_endpoint, settings.trace_sample_ratio)
        except ImportError as error:
            problem = "expected none without the extra: pip install 'dragoman[tracing]'"
            raise SystemExit(f"dragoman serve: --trace-endpoint: {settings.trace_endpoint}: {problem}") from error


def serve(settings: ServeSettings, load: LoadModels = load_models) -> None:
    """Serves bundles until a signal.

    Args:
        settings: of the operator.
        load: loads the graphs of a bundle.

    Raises:
        SystemExit: with one line that says why the service cannot be had.
    """
    configure_logs_and_traces(settings)
    try:
        asyncio.run(_serve(settings, load))
    except (ListenError, FileError, *LOAD_ERRORS) as error:
        raise SystemExit(f"dragoman serve: {error}") from error
    finally:
        stop_traces()
    if any(thread.name in (ENGINE_THREAD, SIDE_THREAD) for thread in threading.enumerate()):
        # It loads a model or hangs in one, and would compute on while the interpreter is taken apart around it.
        sys.stderr.flush()
        os._exit(0)


@asynccontextmanager
async def open_dispatcher(settings: ServeSettings) -> AsyncIterator[Dispatcher]:
    """Yields a dispatcher whose models are ready, for use in this process; no port is opened.

    Raises:
        BundleError: if there is no bundle that can be served with these settings.
        GoldenMismatchError: if a model does not translate as it should.
        TokenizerError: if the tokenizer of a bundle is none.
    """
    metrics = ServiceMetrics()
    loader = ModelLoader(settings, metrics, load_models)
    models = ModelRegistry(await run_in_daemon_thread(loader.open_all))
    lifecycle = Lifecycle(metrics, models)
    try:
        for model in models:
            await loader.start(model)
        lifecycle.enter(Stage.READY)
        yield Dispatcher(models, lifecycle, settings.request_timeout_seconds)
    finally:
        await models.stop()


@asynccontextmanager
async def open_service(settings: ServeSettings, load: LoadModels = load_models) -> AsyncIterator[Service]:
    """Yields a service that is ready and listens nowhere, for a server that brings the ports; drains it in the end.

    Raises:
        FileError: if the keys of clients cannot be had.
        LOAD_ERRORS: if a bundle cannot be served, or does not translate as it should.
    """
    service = await _build(settings, load)
    async with service.without_ports():
        yield service


async def _build(settings: ServeSettings, load: LoadModels) -> Service:
    metrics = ServiceMetrics()
    loader = ModelLoader(settings, metrics, load)
    return Service(settings, ModelRegistry(await run_in_daemon_thread(loader.open_all)), loader, metrics)


async def _serve(settings: ServeSettings, load: LoadModels) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    # Until there is something to reload; its default would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    building = asyncio.create_task(_build(settings, load))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((building, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not building.done():
        log.info("stopped")
        return
    service = building.result()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reloader.start)
    trim_memory()
    await service.listen()
    await service.run(stop)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Makes SIGTERM and SIGINT set the event; a second one ends the process at once."""

    def handle() -> None:
        if stop.is_set():
            log.warning("stopped by a second signal")
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)
