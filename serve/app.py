"""The composition root: builds every object of the service, starts them, and stops them in the right order.

STARTING: both ports answer, nothing is translated; the models are loaded and translate their golden sentences.
READY: until a signal. LAME_DUCK: not ready for probes, but everything is still served. DRAINING: what was accepted is
finished, new requests are refused. Then both ports close. Nothing else constructs services.
"""

import asyncio
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import cycle
from typing import Any

import structlog
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, ProcessCollector

from export.bundle import Bundle, BundleError
from serve.device.device import Device
from serve.device.device_sessions import DeviceSessions
from serve.device.gpu_metrics import GpuCollector
from serve.device.gpus import gpus
from serve.engine.engine import ENGINE_THREAD, Model
from serve.engine.runtime import Runtime, Sessions, rows_ahead
from serve.interfaces.grpc_api import GrpcApi
from serve.interfaces.grpc_options import channel_options
from serve.interfaces.http_api import HttpApi
from serve.interfaces.http_reader import RequestReader
from serve.interfaces.listeners import HttpServer, ListenError, open_port
from serve.interfaces.open_inference import OpenInference
from serve.interfaces.open_inference_grpc import OpenInferenceGrpc
from serve.interfaces.open_inference_http import OpenInferenceHttp
from serve.interfaces.watched_files import FileError
from serve.lifecycle import Lifecycle, Stage
from serve.logs import configure_logs
from serve.models.dispatcher import Dispatcher
from serve.models.model_loader import LOAD_ERRORS, LoadModels, ModelLoader
from serve.models.models import Models
from serve.models.reloader import Reloader
from serve.security import Security
from serve.service_metrics import ServiceMetrics
from serve.settings import ServeSettings
from serve.side_thread import SIDE_THREAD, run_aside
from serve.traces import configure_traces, stop_traces

# How often readiness is looked at, for those who do not ask but watch.
WATCH_SECONDS = 0.5
# Every answer is ready by then; this is the time to send it, and all that a watcher of the health can delay the exit.
GRPC_GRACE_SECONDS = 1.0

log = structlog.get_logger("dragoman")


class Service:
    """The served models behind both interfaces, from the first open port to the last closed one."""

    def __init__(self, settings: ServeSettings, models: Models, loader: ModelLoader, metrics: ServiceMetrics) -> None:
        """Builds every object. Must be called inside the event loop.

        Args:
            settings: of the operator.
            models: opened, not loaded yet; at least one.
            loader: loads them, and those that come later.
            metrics: of the service; gets those of the process and the interpreter.

        Raises:
            FileError: if a certificate or the keys cannot be had.
            SystemExit: if the admin key cannot be had.
        """
        self._settings = settings
        self._loader = loader
        self.models = models
        self.metrics = metrics
        ProcessCollector(registry=metrics.registry)
        metrics.registry.register(GC_COLLECTOR)
        metrics.registry.register(PLATFORM_COLLECTOR)
        if any(model.pipeline.settings.device == "cuda" for model in models):
            metrics.registry.register(GpuCollector())
        metrics.set_build(
            {
                "version": version("dragoman"),
                "python": platform.python_version(),
                "onnxruntime": _version_of_any("onnxruntime", "onnxruntime-gpu"),
            }
        )
        self._security = Security.open(settings)
        self.lifecycle = Lifecycle(metrics, models)
        self.reloader = Reloader(models, loader, self.lifecycle, metrics)
        dispatcher = Dispatcher(models, self.lifecycle, settings.request_timeout_seconds)
        open_inference = OpenInference(dispatcher, models, self.lifecycle)
        self._grpc = GrpcApi(
            dispatcher,
            models,
            metrics,
            OpenInferenceGrpc(open_inference, metrics),
            door=self._security.door,
            options=channel_options(settings),
            tls=self._security.tls,
            stream_unanswered_texts=settings.max_stream_texts,
        )
        reader = RequestReader(settings.max_body_bytes, settings.request_timeout_seconds)
        http_api = HttpApi(
            dispatcher,
            models,
            self.lifecycle,
            metrics,
            reloader=self.reloader,
            reader=reader,
            open_inference=OpenInferenceHttp(open_inference, reader),
            door=self._security.door,
            admin_door=self._security.admin_door,
            open_metrics=settings.open_metrics,
            cors_origins=settings.cors_origins,
        )
        self.http_app = http_api.build()
        self._http = HttpServer(self.http_app, self._security.tls)
        self._started_seconds = time.monotonic()
        self.http_port = 0
        self.grpc_port = 0
        self.ready = asyncio.Event()

    def grpc_handler(self, method: str, authorisation: str) -> Any:
        """Returns what answers a gRPC call; see `GrpcApi.handler`."""
        return self._grpc.handler(method, authorisation)

    async def listen(self) -> None:
        """Opens both ports; requests are answered with `not_ready` for now.

        Raises:
            ListenError: if a port cannot be had.
        """
        # gRPC's own complaint about a taken port does not say why, so a plain socket tries first.
        open_port(self._settings.host, self._settings.grpc_port).close()
        http_socket = open_port(self._settings.host, self._settings.http_port)
        self.http_port = http_socket.getsockname()[1]
        self._http_task = asyncio.create_task(self._http.serve([http_socket]))
        self.grpc_port = await self._grpc.listen(self._settings.host, self._settings.grpc_port)

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set, then drains and closes.

        Raises:
            Exception: whatever kept the service from becoming ready.
        """
        starting = asyncio.create_task(self._become_ready())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                watching = asyncio.create_task(self._watch())
                await stopping
                watching.cancel()
                await self._drain()
        finally:
            starting.cancel()
            stopping.cancel()
            await self._close()

    @asynccontextmanager
    async def without_ports(self) -> AsyncIterator[None]:
        """Is ready while the block runs, for a server that brings the ports; then finishes what was accepted.

        Raises:
            Exception: whatever kept the service from becoming ready.
        """
        try:
            await self._become_ready()
            watching = asyncio.create_task(self._watch())
            try:
                yield
            finally:
                watching.cancel()
            await self._finish_accepted()
        finally:
            await self._stop_models()

    async def _become_ready(self) -> None:
        for model in self.models:
            await self._loader.start(model)
        self.lifecycle.enter(Stage.READY)
        await self._publish_health()
        directions = [str(direction) for each in self.models for direction in each.pipeline.manifest.directions]
        log.info(
            "ready",
            http_port=self.http_port,
            grpc_port=self.grpc_port,
            bundle=str(self._settings.bundle),
            models=self.models.names,
            directions=list(dict.fromkeys(directions)),
            engines=sum(each.pipeline.settings.engine_count for each in self.models),
            slots=sum(each.pipeline.settings.total_slots for each in self.models),
            devices=sorted({each.pipeline.settings.device for each in self.models}),
            seconds=round(time.monotonic() - self._started_seconds, 3),
        )
        self.ready.set()

    async def _watch(self) -> None:
        """Follows the models, which fail, come and go, and the files of certificates and keys."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            self._security.refresh()
            await self._publish_health()

    async def _publish_health(self) -> None:
        models = {each.name: each.pipeline.readiness.ready for each in self.models}
        await self._grpc.set_serving(self.lifecycle.refresh(), models)

    async def _drain(self) -> None:
        self.lifecycle.enter(Stage.LAME_DUCK)
        await self._grpc.set_serving(serving=False, models=dict.fromkeys(self.models.names, False))
        log.info("lame duck", seconds=self._settings.lame_duck_seconds)
        await asyncio.sleep(self._settings.lame_duck_seconds)
        await self._finish_accepted()

    async def _finish_accepted(self) -> None:
        self.lifecycle.enter(Stage.DRAINING)
        self._grpc.drain()
        schedulers = [each.pipeline.scheduler for each in self.models]

        def load() -> dict[str, int]:
            return {
                "running": sum(each.running for each in schedulers),
                "waiting": sum(each.waiting for each in schedulers),
            }

        log.info("draining", **load())
        try:
            async with asyncio.timeout(self._settings.drain_seconds):
                await self.models.wait_unused()
        except TimeoutError:
            log.warning("drain time is over", **load())

    async def _close(self) -> None:
        await self._stop_models()
        self._http.should_exit = True
        await asyncio.gather(self._grpc.stop(GRPC_GRACE_SECONDS), self._http_task)
        log.info("stopped")

    async def _stop_models(self) -> None:
        self.lifecycle.enter(Stage.DRAINING)
        self._grpc.drain()
        await self.reloader.stop()
        await self.models.stop()


def load_models(
    settings: ServeSettings, bundle: Bundle, change: Callable[[Sessions], Sessions] = lambda sessions: sessions
) -> list[Model]:
    """Returns a model for each engine; on the CPU they share the sessions.

    Args:
        settings: of the model, settled by `serve.models.model_loader`.
        bundle: what is loaded.
        change: puts something around the sessions, whose answers it must not change; by default nothing. CPU only.

    Raises:
        BundleError: if ONNX Runtime refuses a graph.
    """
    if settings.device == "cuda":
        return load_on_gpus(settings, bundle)
    sessions = change(Sessions.load(bundle, settings.engine_threads, aligned=settings.alignments))
    return [Runtime(sessions, settings.slots, rows_ahead(settings.slots)) for _ in range(settings.engine_count)]


def load_on_gpus(settings: ServeSettings, bundle: Bundle) -> list[Model]:
    """Returns a model for each engine, each with its own sessions; they take turns among the GPUs.

    Raises:
        BundleError: if ONNX Runtime refuses a graph, or a GPU has not the memory after all.
    """
    models: list[Model] = []
    for number, gpu in zip(range(settings.engine_count), cycle(range(len(gpus())))):
        sessions = DeviceSessions.load(
            bundle, Device("cuda", gpu), aligned=settings.alignments, memory_bytes=settings.device_memory_bytes
        )
        try:
            models.append(sessions.runtime(settings.slots, rows_ahead(settings.slots)))
        except Exception as error:  # ONNX Runtime's exceptions share no base class of their own
            problem = "expected memory for as many: use fewer, or --device-memory-bytes"
            raise BundleError(f"--slots: {settings.slots}: {problem}: engine {number}, GPU {gpu}: {error}") from error
    return models


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
    models = Models(await run_aside(loader.open_all))
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
    metrics = ServiceMetrics()
    loader = ModelLoader(settings, metrics, load)
    service = Service(settings, Models(await run_aside(loader.open_all)), loader, metrics)
    async with service.without_ports():
        yield service


async def _serve(settings: ServeSettings, load: LoadModels) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    # Until there is something to reload; its default would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    metrics = ServiceMetrics()
    loader = ModelLoader(settings, metrics, load)
    opening = asyncio.create_task(run_aside(loader.open_all))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait((opening, stopping), return_when=asyncio.FIRST_COMPLETED)
    if not opening.done():
        log.info("stopped")
        return
    service = Service(settings, Models(opening.result()), loader, metrics)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reloader.start)
    await service.listen()
    await service.run(stop)


def _version_of_any(*distributions: str) -> str:
    """Returns the version of the one of them that is installed; empty: none is."""
    for distribution in distributions:
        with suppress(PackageNotFoundError):
            return version(distribution)
    return ""


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
