"""The service: models behind gRPC and REST, from the first open port to the last closed one.

STARTING: both ports are open; requests fail with `not_ready` while models load and translate their golden sentences.
READY: until the stop signal. LAME_DUCK: readiness is off, and every request is served. DRAINING: accepted requests
finish, new ones are rejected. Then both ports close.

One of several processes opens its ports when it is ready if others serve already. RETIRING: another process has taken
its place; it takes no new connections, and finishes those that it has.
"""

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable

import structlog

from dragoman.serve.composition import RestBuilder, build_core, build_documents, build_grpc
from dragoman.serve.documents_api.translator import SegmentTranslator
from dragoman.serve.host.state import State
from dragoman.serve.http.limits import HttpLimits, affordable_connections
from dragoman.serve.http.server import HttpServer, ListenError, open_port
from dragoman.serve.observability.exposition import write_metrics
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.registry.keeper import ModelKeeper
from dragoman.serve.registry.lifecycle import Stage
from dragoman.serve.registry.loader import ModelLoader
from dragoman.serve.registry.registry import ModelRegistry
from dragoman.serve.registry.reloader import Reloader
from dragoman.serve.sandbox.sandbox import Sandbox
from dragoman.serve.settings import ServeSettings
from dragoman.serve.worker import Worker, WorkerState

# Interval of health updates for clients of gRPC `Health.Watch`, and of checks for changed files.
WATCH_SECONDS = 0.5
# Time to send the last responses, which are complete by then. Open `Health.Watch` calls delay the exit by this time.
GRPC_GRACE_SECONDS = 1.0
# Within this time, a connection in use gets an answer that closes it, before another process takes over.
HAND_OVER_SECONDS = 1.0

log = structlog.get_logger("dragoman")


class Service:
    """The served models behind gRPC and REST."""

    def __init__(
        self,
        settings: ServeSettings,
        models: ModelRegistry,
        loader: ModelLoader,
        metrics: ServiceMetrics,
        *,
        state: State | None = None,
        http_limits: HttpLimits | None = None,
        worker: Worker | None = None,
    ) -> None:
        """Builds every object. Must be called inside the event loop.

        Args:
            models: opened, not loaded; at least one.
            loader: loads the models, also at a reload.
            metrics: extended by those of the process and the interpreter.
            state: what outlives the process; closed with the service.
            http_limits: of HTTP connections; None: as the settings and the process allow.
            worker: the slot of this process among several; None: it serves alone.

        Raises FileError if a file of certificates or keys is invalid, SystemExit if the admin key is invalid.
        """
        self._worker = worker
        self._listening = False
        sandbox = Sandbox(None if worker is None else worker.slot.parsers)
        self.keeper = ModelKeeper(models, loader, settings, metrics)
        core = self.core = build_core(settings, self.keeper, metrics, state, sandbox)
        self.models, self.metrics, self.lifecycle = models, metrics, core.lifecycle
        self.reloader = Reloader(self.keeper, loader, self.lifecycle, metrics)
        if worker is not None:
            worker.attach(self.lifecycle, metrics, self.reloader)
        self._grpc = build_grpc(core, shared=worker is not None)
        limits = http_limits or HttpLimits(affordable_connections(), settings.http_max_connections_per_address)
        translator = SegmentTranslator(core.dispatcher, models, core.security.authenticator)
        self._documents = build_documents(core, translator)
        self.http_app = RestBuilder(core, self._documents, translator, limits).build(
            self.reloader.reload if worker is None else worker.reload,
            self._read_metrics if worker is None else worker.read_metrics,
        )
        tls = core.security.tls
        context = None if tls is None else tls.http_context()
        self._http = HttpServer(self.http_app, metrics.http_connections, limits, context, shared=worker is not None)
        self._started_seconds = time.monotonic()
        self.http_port = 0
        self.grpc_port = 0
        self.ready = asyncio.Event()

    async def listen(self) -> None:
        """Opens both ports; until the models are ready, requests fail with `not_ready`.

        Does nothing in one of several processes that opens its ports later.

        Raises ListenError if a port cannot be opened.
        """
        if self._worker is not None:
            if self._worker.slot.listens_at_once:
                await self._listen_with_others(self._worker)
            return
        http_socket = open_port(self.core.settings.host, self.core.settings.http_port)
        try:
            # The error of gRPC has no reason, so a plain socket tries the port first.
            open_port(self.core.settings.host, self.core.settings.grpc_port).close()
        except ListenError:
            http_socket.close()
            raise
        await self._open(http_socket, self.core.settings.grpc_port)

    async def _listen_with_others(self, worker: Worker) -> None:
        await self._open(worker.slot.http_socket, worker.slot.grpc_port)
        await self._publish_health()

    async def _open(self, http_socket: socket.socket, grpc_port: int) -> None:
        self.http_port = http_socket.getsockname()[1]
        self._http.listen(http_socket)
        self.grpc_port = await self._grpc.listen(self.core.settings.host, grpc_port)
        self._listening = True
        self.lifecycle.lost_interface = self._lost_interface

    def _lost_interface(self) -> str | None:
        """Returns the name of an interface that has stopped listening; None: both listen."""
        listening = {"gRPC": self._grpc.listening, "REST": self._http.listener.listening}
        return next((name for name, listens in listening.items() if not listens), None)

    async def run(self, stop: asyncio.Event) -> None:
        """Serves until `stop` is set, then drains and closes.

        Raises:
            ListenError: if an interface has stopped listening; then the service drains and closes, too.
            Exception: if the service cannot become ready.
        """
        starting = asyncio.create_task(self._become_ready())
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                watching = asyncio.create_task(self._watch())
                lost = asyncio.create_task(self._wait_lost())
                await asyncio.wait((lost, stopping), return_when=asyncio.FIRST_COMPLETED)
                watching.cancel()
                lost.cancel()
                await self._leave()
                if not stop.is_set():
                    raise ListenError(f"{lost.result()} no longer listens")
        finally:
            starting.cancel()
            stopping.cancel()
            await self._stop_models()
            if self._listening:
                await asyncio.gather(self._grpc.stop(GRPC_GRACE_SECONDS), self._http.shut_down())
            log.info("stopped")

    async def _become_ready(self) -> None:
        await self.keeper.prove_all()
        self.lifecycle.enter(Stage.READY)
        if self._worker is not None and not self._listening:
            await self._listen_with_others(self._worker)
        await self._publish_health()
        if self._documents is not None:
            self._documents.start()
        directions = [shown for served in self.models for shown in served.directions.summary()]
        log.info(
            "ready" if self._worker is None else "worker_ready",
            http_port=self.http_port,
            grpc_port=self.grpc_port,
            bundle=str(self.core.settings.bundle),
            models=self.models.names,
            directions=list(dict.fromkeys(directions)),
            engines=sum(served.settings.engine_count for served in self.models),
            slots=sum(served.settings.total_slots for served in self.models),
            devices=sorted({served.settings.device for served in self.models}),
            seconds=round(time.monotonic() - self._started_seconds, 3),
        )
        self.ready.set()

    async def _watch(self) -> None:
        """Looks regularly after what changes. A database that does not answer delays only its own work."""
        await asyncio.gather(_repeat(self._look), _repeat(self.core.security.synchronize))

    async def _wait_lost(self) -> str:
        """Returns the name of an interface as soon as it has stopped listening."""
        while (interface := self._lost_interface()) is None:  # noqa: ASYNC110 - a socket that is lost causes no event
            await asyncio.sleep(WATCH_SECONDS)
        log.error("interface_lost", interface=interface)
        await self._publish_health()
        return interface

    async def _look(self) -> None:
        """Publishes the health of the models, lets idle ones leave, and reloads changed certificates and keys."""
        self.core.security.refresh()
        self.core.load_shedder.watch()
        await self.keeper.evict_idle()
        await self._publish_health()

    async def _publish_health(self) -> None:
        if self._worker is not None:
            ready = self.lifecycle.own_unready_reason() is None
            listening = self._listening and self._lost_interface() is None
            await self._worker.report(WorkerState(listening, ready, self.lifecycle.live))
        models = {model.name: model.fault() is None for model in self.models}
        await self._grpc.set_serving(self.lifecycle.unready_reason() is None, models)

    async def _read_metrics(self) -> bytes:
        self.lifecycle.refresh()
        return await asyncio.to_thread(write_metrics, self.metrics.registry)

    async def _hand_over(self) -> None:
        """Takes no new connections, and finishes the requests of those that it has.

        A health check that failed would cut off clients that know a single address: their connection would stay.
        """
        log.info("retiring")
        self.lifecycle.enter(Stage.RETIRING)
        self._http.listener.leave()
        self._grpc.drain()
        stopping = asyncio.create_task(self._grpc.leave(self.core.settings.drain_seconds))
        await asyncio.sleep(max(HAND_OVER_SECONDS, self.core.settings.lame_duck_seconds))
        try:
            async with asyncio.timeout(self.core.settings.drain_seconds):
                await asyncio.gather(stopping, self.lifecycle.requests.wait_none())
        except TimeoutError:
            log.warning("drain_timed_out")
        # The models still run: a connection that was idle until now may send its next request.
        await self._http.shut_down()

    async def _leave(self) -> None:
        await self._stop_documents()
        if self._worker is not None and self._worker.replaced:
            await self._hand_over()
            return
        unhealthy = self._grpc.set_serving(serving=False, models=dict.fromkeys(self.models.names, False))
        await self.lifecycle.run_lame_duck(unhealthy, self.core.settings.lame_duck_seconds)
        await self._finish_accepted()

    async def _finish_accepted(self) -> None:
        self.lifecycle.enter(Stage.DRAINING)
        self._grpc.drain()
        schedulers = [pipeline.scheduler for pipeline in self.models.pipelines]

        def load() -> dict[str, int]:
            return {
                "running": sum(scheduler.running for scheduler in schedulers),
                "waiting": sum(scheduler.waiting for scheduler in schedulers),
            }

        log.info("draining", **load())
        try:
            async with asyncio.timeout(self.core.settings.drain_seconds):
                await self.lifecycle.requests.wait_none()
        except TimeoutError:
            log.warning("drain_timed_out", **load())

    async def _stop_documents(self) -> None:
        """Gives the jobs back: another process, or this server after its next start, translates them."""
        if self._documents is not None:
            await self._documents.stop()

    async def _stop_models(self) -> None:
        self.lifecycle.enter(Stage.DRAINING)
        self._grpc.drain()
        await self._stop_documents()
        await self.reloader.stop()
        if self.core.on_demand is not None:
            await self.core.on_demand.stop()
        await self.keeper.stop()
        await self.models.stop()
        await self.core.security.accounts.close()
        self.core.sandbox.close()
        if self.core.state is not None:
            self.core.state.close()


async def _repeat(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            await work()
        except Exception:  # if the watch ended, what it watches would never change
            log.exception("watch_failed")
