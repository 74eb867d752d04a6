"""The composition root: builds every object of the service, starts them, and stops them in the right order.

STARTING: both ports answer, nothing is translated; the models are loaded and translate their golden sentences.
READY: until a signal. LAME_DUCK: not ready for probes, but everything is still served. DRAINING: what was accepted is
finished, new requests are refused. Then both ports close. Nothing else constructs services.
"""

import asyncio
import os
import platform
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import structlog
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, ProcessCollector

from export.bundle import Bundle
from serve.dispatcher import Dispatcher
from serve.engine import Model
from serve.grpc_api import GrpcApi
from serve.http_api import HttpApi
from serve.lifecycle import Lifecycle, Stage
from serve.listeners import HttpServer, ListenError, open_port
from serve.logs import configure_logs
from serve.model_loader import LOAD_ERRORS, ModelLoader
from serve.models import Models
from serve.reloader import Reloader
from serve.runtime import Runtime, Sessions
from serve.service_metrics import ServiceMetrics
from serve.settings import ServeCommand

# How often readiness is looked at, for those who do not ask but watch.
WATCH_SECONDS = 0.5
# Every answer is ready by then; this is the time to send it, and all that a watcher of the health can delay the exit.
GRPC_GRACE_SECONDS = 1.0

log = structlog.get_logger("dragoman")


class Service:
    """The served models behind both interfaces, from the first open port to the last closed one."""

    def __init__(self, settings: ServeCommand, models: Models, loader: ModelLoader, metrics: ServiceMetrics) -> None:
        """Builds every object. Must be called inside the event loop.

        Args:
            settings: of the operator.
            models: opened, not loaded yet; at least one.
            loader: loads them, and those that come later.
            metrics: of the service; gets those of the process and the interpreter.

        Raises:
            SystemExit: if the admin key cannot be had.
        """
        self._settings = settings
        self._loader = loader
        self.models = models
        self.metrics = metrics
        ProcessCollector(registry=metrics.registry)
        metrics.registry.register(GC_COLLECTOR)
        metrics.registry.register(PLATFORM_COLLECTOR)
        metrics.set_build({"version": version("dragoman"), "python": platform.python_version()})
        self.lifecycle = Lifecycle(metrics, models)
        self.reloader = Reloader(models, loader, self.lifecycle, metrics)
        dispatcher = Dispatcher(models, self.lifecycle, settings.request_timeout_seconds)
        self._grpc = GrpcApi(dispatcher, models, metrics, max_body_bytes=settings.max_body_bytes)
        http_api = HttpApi(
            dispatcher,
            models,
            self.lifecycle,
            metrics,
            self.reloader,
            admin_key=settings.read_admin_key(),
            max_body_bytes=settings.max_body_bytes,
            default_timeout_seconds=settings.request_timeout_seconds,
        )
        self._http = HttpServer(http_api.build())
        self._started_seconds = time.monotonic()
        self.http_port = 0
        self.grpc_port = 0
        self.ready = asyncio.Event()

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
            engines=self._settings.engine_count,
            slots=self._settings.slots,
            seconds=round(time.monotonic() - self._started_seconds, 3),
        )
        self.ready.set()

    async def _watch(self) -> None:
        """Follows the models, which fail, come and go."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self._publish_health()

    async def _publish_health(self) -> None:
        models = {each.name: each.pipeline.readiness.ready for each in self.models}
        await self._grpc.set_serving(self.lifecycle.refresh(), models)

    async def _drain(self) -> None:
        self.lifecycle.enter(Stage.LAME_DUCK)
        await self._grpc.set_serving(serving=False, models=dict.fromkeys(self.models.names, False))
        log.info("lame duck", seconds=self._settings.lame_duck_seconds)
        await asyncio.sleep(self._settings.lame_duck_seconds)
        self.lifecycle.enter(Stage.DRAINING)
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
        self.lifecycle.enter(Stage.DRAINING)
        await self.reloader.stop()
        await self.models.stop()
        self._http.should_exit = True
        await asyncio.gather(self._grpc.stop(GRPC_GRACE_SECONDS), self._http_task)
        log.info("stopped")


def serve(settings: ServeCommand) -> None:
    """Serves bundles until a signal.

    Raises:
        SystemExit: with one line that says why the service cannot be had.
    """
    configure_logs(settings.log_format)
    try:
        asyncio.run(_serve(settings))
    except (ListenError, *LOAD_ERRORS) as error:
        raise SystemExit(f"dragoman serve: {error}") from error


@asynccontextmanager
async def open_dispatcher(settings: ServeCommand) -> AsyncIterator[Dispatcher]:
    """Yields a dispatcher whose models are ready, for use in this process; no port is opened.

    Raises:
        BundleError: if there is no bundle that can be served with these settings.
        GoldenMismatchError: if a model does not translate as it should.
        TokenizerError: if the tokenizer of a bundle is none.
    """
    metrics = ServiceMetrics()
    loader = ModelLoader(settings, metrics, _load_models)
    models = Models(await asyncio.to_thread(loader.open_all))
    lifecycle = Lifecycle(metrics, models)
    try:
        for model in models:
            await loader.start(model)
        lifecycle.enter(Stage.READY)
        yield Dispatcher(models, lifecycle, settings.request_timeout_seconds)
    finally:
        await models.stop()


async def _serve(settings: ServeCommand) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    # Until there is something to reload; its default would end the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    metrics = ServiceMetrics()
    loader = ModelLoader(settings, metrics, _load_models)
    models = Models(await asyncio.to_thread(loader.open_all))
    service = Service(settings, models, loader, metrics)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.reloader.start)
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


def _load_models(settings: ServeCommand, bundle: Bundle) -> list[Model]:
    sessions = Sessions.load(bundle, settings.engine_threads, aligned=settings.alignments)
    return [Runtime(sessions, settings.slots) for _ in range(settings.engine_count)]
