"""The composition root: builds every object of the service, starts them, and stops them in the right order.

STARTING: both ports answer, nothing is translated; the model is loaded and translates the golden sentences.
READY: until a signal. LAME_DUCK: not ready for probes, but everything is still served. DRAINING: what was accepted is
finished, new requests are refused. Then both ports close. Nothing else constructs services.
"""

import asyncio
import os
import platform
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version

import structlog
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, CollectorRegistry, ProcessCollector

from export.bundle import WEIGHTS_FILE, Bundle, BundleError
from model.tokenizer import TokenizerError
from serve.engine import Model
from serve.errors import ServiceError
from serve.golden import GoldenMismatchError
from serve.grpc_api import GrpcApi
from serve.http_api import HttpApi
from serve.lifecycle import Stage
from serve.listeners import HttpServer, ListenError, open_port
from serve.logs import configure_logs
from serve.pipeline import Pipeline
from serve.runtime import Runtime, Sessions
from serve.settings import ServeCommand

# How often the engines' health is looked at, for those who do not ask but watch.
WATCH_SECONDS = 0.5
# Every answer is ready by then; this is the time to send it, and all that a watcher of the health can delay the exit.
GRPC_GRACE_SECONDS = 1.0
# Waiting is cut in pieces of this length, so that no thread outlives the event loop by more.
DRAIN_POLL_SECONDS = 0.1

log = structlog.get_logger("dragoman")


class Service:
    """A pipeline behind both interfaces, from the first open port to the last closed one."""

    def __init__(self, settings: ServeCommand, bundle: Bundle, load_models: Callable[[], Iterable[Model]]) -> None:
        """Builds every object. Must be called inside the event loop.

        Args:
            settings: of the operator.
            bundle: what is served.
            load_models: returns a model for each engine; takes its time, in a thread of its own.
        """
        self._settings = settings
        self._load_models = load_models
        self._directions = directions = [str(direction) for direction in bundle.manifest.directions]
        self.pipeline = pipeline = Pipeline(settings, bundle, build_registry())
        pipeline.metrics.set_info(
            build={"version": version("dragoman"), "python": platform.python_version()},
            model={
                "directions": ",".join(directions),
                "precision": bundle.manifest.precision,
                "opset": str(bundle.manifest.opset),
                "weights_sha256": bundle.manifest.files[WEIGHTS_FILE],
            },
        )
        self._grpc = GrpcApi(
            pipeline.translator, pipeline.limits, pipeline.metrics, max_body_bytes=settings.max_body_bytes
        )
        http_api = HttpApi(
            pipeline.translator,
            pipeline.limits,
            pipeline.lifecycle,
            pipeline.metrics,
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
        self.pipeline.start(await asyncio.to_thread(self._load_models))
        await self.pipeline.warm_up()
        await self._grpc.set_serving(serving=True)
        log.info(
            "ready",
            http_port=self.http_port,
            grpc_port=self.grpc_port,
            bundle=str(self._settings.bundle),
            directions=self._directions,
            engines=self._settings.engine_count,
            slots=self._settings.slots,
            seconds=round(time.monotonic() - self._started_seconds, 3),
        )
        self.ready.set()

    async def _watch(self) -> None:
        """Follows a failure of the engines: not ready, until the golden sentences come out right again."""
        lifecycle = self.pipeline.lifecycle
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if lifecycle.refresh():
                continue
            lifecycle.enter(Stage.STARTING)
            await self._grpc.set_serving(serving=False)
            try:
                await self.pipeline.warm_up()
            except (GoldenMismatchError, ServiceError) as error:
                log.warning("not ready", problem=str(error))
            if lifecycle.refresh():
                await self._grpc.set_serving(serving=True)
                log.info("ready again")

    async def _drain(self) -> None:
        lifecycle, scheduler = self.pipeline.lifecycle, self.pipeline.scheduler
        lifecycle.enter(Stage.LAME_DUCK)
        await self._grpc.set_serving(serving=False)
        log.info("lame duck", seconds=self._settings.lame_duck_seconds)
        await asyncio.sleep(self._settings.lame_duck_seconds)
        lifecycle.enter(Stage.DRAINING)
        scheduler.drain()
        log.info("draining", running=scheduler.running, waiting=scheduler.waiting)
        deadline_seconds = time.monotonic() + self._settings.drain_seconds
        while not await asyncio.to_thread(scheduler.wait_idle, DRAIN_POLL_SECONDS):
            if time.monotonic() >= deadline_seconds:
                log.warning("drain time is over", running=scheduler.running, waiting=scheduler.waiting)
                break

    async def _close(self) -> None:
        self.pipeline.lifecycle.enter(Stage.DRAINING)
        await asyncio.to_thread(self.pipeline.stop)
        self._http.should_exit = True
        await asyncio.gather(self._grpc.stop(GRPC_GRACE_SECONDS), self._http_task)
        log.info("stopped")


def build_registry() -> CollectorRegistry:
    """Returns a registry that holds the instruments of the process and the interpreter."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(GC_COLLECTOR)
    registry.register(PLATFORM_COLLECTOR)
    return registry


def serve(settings: ServeCommand) -> None:
    """Serves a bundle until a signal.

    Raises:
        SystemExit: with one line that says why the service cannot be had.
    """
    configure_logs(settings.log_format)
    try:
        asyncio.run(_serve(settings))
    except (BundleError, GoldenMismatchError, ListenError, OSError, ServiceError, TokenizerError) as error:
        raise SystemExit(f"dragoman serve: {error}") from error


@asynccontextmanager
async def open_pipeline(settings: ServeCommand) -> AsyncIterator[Pipeline]:
    """Yields a pipeline that is ready, for use in this process; no port is opened.

    Raises:
        BundleError: if the folder is not a bundle that can be served with these settings.
        GoldenMismatchError: if the model does not translate as it should.
        TokenizerError: if the bundle's tokenizer is not one.
    """
    bundle = await asyncio.to_thread(Bundle.open, settings.bundle)
    pipeline = Pipeline(settings, bundle, CollectorRegistry())
    pipeline.start(await asyncio.to_thread(_load_models, settings, bundle))
    try:
        await pipeline.warm_up()
        yield pipeline
    finally:
        await asyncio.to_thread(pipeline.stop)


async def _serve(settings: ServeCommand) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    bundle = await asyncio.to_thread(Bundle.open, settings.bundle)
    service = Service(settings, bundle, lambda: _load_models(settings, bundle))
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
