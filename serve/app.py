"""The composition root: builds the service, starts it, and stops it on a signal."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

import structlog

from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.engine.engines import NativeEngine
from dragoman.serve.host import event_loop
from dragoman.serve.host.files import FileError
from dragoman.serve.host.state import StateError
from dragoman.serve.host.system import open_standard_descriptors, raise_most_open_files
from dragoman.serve.http.limits import HttpLimits
from dragoman.serve.http.server import ListenError
from dragoman.serve.observability.log_writer import EXIT_SECONDS, LOG_WRITER, unblock
from dragoman.serve.observability.logs import configure_logs
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.observability.traces import configure_traces, stop_traces
from dragoman.serve.registry.engine_models import load_engines
from dragoman.serve.registry.loader import LoadModels, ModelLoader, load_threads
from dragoman.serve.registry.registry import ModelRegistry
from dragoman.serve.service import Service
from dragoman.serve.settings import ServeSettings
from dragoman.serve.worker import Worker, WorkerSlot

# Expected reasons why a service cannot start.
SERVING_ERRORS = (BundleError, FileError, ListenError, OSError, StateError)
THREAD_END_SECONDS = 0.2
# The event loop waits this long while another thread, such as that of large requests, computes in Python.
SWITCH_SECONDS = 0.001
# Collections took a sixth of the time of a lone request. Requests leave few cycles behind.
GARBAGE_OBJECTS = 10_000

log = structlog.get_logger("dragoman")


def configure_logs_and_traces(settings: ServeSettings, worker: int | None = None) -> None:
    """Configures logs and traces of this process; `worker` is its number among several that serve.

    Raises SystemExit if traces are configured, but their libraries are missing.
    """
    configure_logs(settings.log_format, texts=settings.log_texts, worker=worker)
    unblock(sys.stderr)
    if settings.trace_endpoint is not None:
        try:
            configure_traces(settings.trace_endpoint, settings.trace_sample_ratio)
        except ImportError as error:
            problem = "requires the extra tracing: pip install '.[tracing]'"
            raise SystemExit(f"dragoman serve: --trace-endpoint: {settings.trace_endpoint}: {problem}") from error


def serve(settings: ServeSettings, load: LoadModels | None = None) -> None:
    """Serves bundles until a signal; raises SystemExit with one line, if the service cannot start.

    `load` loads the graphs of a bundle for engines in Python; None: for the engines that fit the bundle.
    """
    configure_logs_and_traces(settings)
    raise_most_open_files()
    open_standard_descriptors()
    problem = None
    try:
        event_loop.run(_serve(settings, load))
    except SERVING_ERRORS as error:
        problem = f"dragoman serve: {error}"
    finally:
        stop_traces()
        LOG_WRITER.drain(EXIT_SECONDS)
    if _a_thread_hangs():
        # It would continue to compute while the interpreter finalizes.
        with suppress(OSError):
            if problem is not None:
                print(problem, file=sys.stderr)
            sys.stderr.flush()
        os._exit(0 if problem is None else 1)
    if problem is not None:
        raise SystemExit(problem)


def _a_thread_hangs() -> bool:
    """Returns whether a thread still loads or computes. One that has finished its work gets a moment to end."""
    for thread in load_threads():
        thread.join(THREAD_END_SECONDS)
    return bool(load_threads() or NativeEngine.abandoned)


def serve_as_worker(settings: ServeSettings, slot: WorkerSlot, load: LoadModels | None = None) -> int:
    """Serves as one of several processes, until a signal or the supervisor's word; returns the exit status."""
    configure_logs_and_traces(settings, worker=slot.number)
    try:
        problem = event_loop.run(_serve_as_worker(settings, slot, load))
    finally:
        stop_traces()
        LOG_WRITER.drain(EXIT_SECONDS)
    return 0 if problem is None else 1


async def build_service(
    settings: ServeSettings,
    load: LoadModels | None,
    *,
    worker: Worker | None = None,
    http_limits: HttpLimits | None = None,
) -> Service:
    """Builds a service that opens no port yet and loads no model; arguments as those of `serve` and `Service`.

    Raises:
        BundleError: if a bundle cannot be opened.
        FileError: if a file of certificates or keys is invalid.
        StateError: if the state directory cannot be used.
    """
    metrics = ServiceMetrics()
    loader = ModelLoader(settings, metrics, load or load_engines, native=load is None)
    models = ModelRegistry(await loader.open_all())
    state = settings.open_state()
    return Service(settings, models, loader, metrics, state=state, http_limits=http_limits, worker=worker)


async def _serve(settings: ServeSettings, load: LoadModels | None) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    # Ignored until the reloader exists: the default action ends the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    service = await _build_unless_stopped(build_service(settings, load), stop)
    if service is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reloader.start)
        await _run(service, stop)


async def _serve_as_worker(settings: ServeSettings, slot: WorkerSlot, load: LoadModels | None) -> str | None:
    """Serves as one of several processes; returns the problem if it cannot, after telling the supervisor."""
    stop = asyncio.Event()
    worker = Worker(slot, stop)
    worker.stop_on_signals()
    try:
        service = await _build_unless_stopped(build_service(settings, load, worker=worker), stop)
        if service is not None:
            await _run(service, stop)
    except SERVING_ERRORS as error:
        await worker.report_failure(str(error))
        return str(error)
    else:
        return None
    finally:
        await worker.finish()


async def _build_unless_stopped(building: Coroutine[Any, Any, Service], stop: asyncio.Event) -> Service | None:
    built = asyncio.create_task(building)
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((built, stopping), return_when=asyncio.FIRST_COMPLETED)
    if built.done():
        return built.result()
    log.info("stopped")
    return None


async def _run(service: Service, stop: asyncio.Event) -> None:
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(GARBAGE_OBJECTS)
    await service.listen()
    await service.run(stop)


def stop_on_signals(stop: asyncio.Event) -> None:
    """Makes SIGTERM and SIGINT set the event; a second one ends the process at once."""

    def handle() -> None:
        if stop.is_set():
            log.warning("stopped_by_second_signal")
            LOG_WRITER.drain(EXIT_SECONDS)
            os._exit(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, handle)
