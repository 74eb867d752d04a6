"""The service: models behind gRPC and REST, from the first open port to the last closed one.

STARTING: both ports are open; requests fail with `not_ready` while models load and translate their golden sentences.
READY: until the stop signal. LAME_DUCK: readiness is off, and every request is served. DRAINING: accepted requests
finish, new ones are rejected. Then both ports close.

One of several processes opens its ports when it is ready if others serve already. RETIRING: another process has taken
its place; it takes no new connections, and finishes those that it has.
"""

import asyncio
import platform
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import structlog
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, ProcessCollector

from serve.compat.deepl.http import DeepLHttp
from serve.compat.libretranslate.http import LibreTranslateHttp
from serve.compat.libretranslate.suggestions import SuggestionStore
from serve.compat.open_inference.grpc import OpenInferenceGrpc
from serve.compat.open_inference.http import OpenInferenceHttp
from serve.compat.open_inference.protocol import OpenInference
from serve.documents_api.background import BackgroundDocuments
from serve.documents_api.http import HttpDocuments
from serve.documents_api.parts import DocumentParts
from serve.documents_api.translator import SegmentTranslator
from serve.edge.arrivals import HTTP_TURNS, Arrivals
from serve.edge.auth import Security
from serve.edge.body_parser import BodyParser
from serve.edge.load_shedding import LoadShedder, Processor
from serve.edge.parameters import ParameterReader
from serve.edge.reader import RequestReader
from serve.edge.value_limit import most_values
from serve.glossaries.reader import GlossaryReader
from serve.glossaries.store import GlossaryStore
from serve.grpc.api import GrpcApi
from serve.grpc.options import channel_options
from serve.host.files import FileError
from serve.host.state import State
from serve.host.system import trim_memory
from serve.http.limits import HttpLimits, affordable_connections
from serve.http.server import HttpServer, ListenError, open_port
from serve.keys.accounts import KeyMetrics
from serve.observability.exposition import write_metrics
from serve.observability.log_writer import LOG_WRITER
from serve.observability.metrics import ServiceMetrics
from serve.registry.dispatcher import Dispatcher
from serve.registry.lame_duck import run_lame_duck
from serve.registry.lifecycle import Lifecycle, Stage
from serve.registry.loader import ModelLoader
from serve.registry.registry import ModelRegistry
from serve.registry.reloader import Reloader
from serve.rest.api import HttpApi
from serve.rest.glossaries import HttpGlossaries
from serve.rest.keys import HttpKeys
from serve.runtime.cuda.driver import GpuCollector
from serve.sandbox.sandbox import Sandbox
from serve.settings import OFF, ServeSettings
from serve.worker import Worker, WorkerState

# Interval of health updates for clients of gRPC `Health.Watch`, and of checks for changed files.
WATCH_SECONDS = 0.5
# Time to send the last responses, which are complete by then. Open `Health.Watch` calls delay the exit by this time.
GRPC_GRACE_SECONDS = 1.0
# Within this time, a connection in use gets an answer that closes it, before another process takes over.
HAND_OVER_SECONDS = 1.0
# Documents that are being received at once take at most as much memory as so many of the largest ones.
MOST_LARGEST_DOCUMENTS = 8

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
            settings: of the service.
            models: opened, not loaded; at least one.
            loader: loads the models, also at a reload.
            metrics: extended by the metrics of the process and the interpreter.
            state: what outlives the process; closed with the service.
            http_limits: of HTTP connections; None: as the settings and the process allow.
            worker: the place of this process among several; None: it serves alone.

        Raises:
            FileError: if a file of certificates or keys is invalid.
            SystemExit: if the admin key is invalid.
        """
        self._settings = settings
        self._loader = loader
        self._worker = worker
        self._listening = False
        self._state = state
        self.models = models
        self.metrics = metrics
        ProcessCollector(registry=metrics.registry)
        metrics.registry.register(GC_COLLECTOR)
        metrics.registry.register(PLATFORM_COLLECTOR)
        metrics.registry.register(LOG_WRITER)
        if any(model.pipeline.settings.device == "cuda" for model in models):
            metrics.registry.register(GpuCollector())
        metrics.set_build(
            {
                "version": version("dragoman"),
                "python": platform.python_version(),
                "onnxruntime": _version_of_any("onnxruntime", "onnxruntime-gpu"),
            }
        )
        self._security = Security.open(settings, state)
        if settings.key_metrics:
            metrics.registry.register(KeyMetrics(self._security.accounts))
        self.lifecycle = Lifecycle(metrics, models)
        self.reloader = Reloader(models, loader, self.lifecycle, metrics)
        if worker is not None:
            worker.attach(self.lifecycle, metrics, self.reloader)
        self._sandbox = Sandbox(None if worker is None else worker.place.parsers)
        glossaries, glossary_files = None if state is None else GlossaryStore(state), GlossaryReader(self._sandbox)
        dispatcher = Dispatcher(models, self.lifecycle, settings.request_timeout_seconds, glossaries)
        open_inference = OpenInference(dispatcher, models, self.lifecycle)
        self._load_shedder = LoadShedder(lambda: (each.pipeline.scheduler for each in models), Processor().busy_share)
        values = most_values(max(each.max_texts for each in (settings, *settings.models.values())))
        self._grpc = GrpcApi(
            dispatcher,
            models,
            metrics,
            [OpenInferenceGrpc(open_inference, metrics, values)],
            authenticator=self._security.authenticator,
            load_shedder=self._load_shedder,
            options=channel_options(settings, shared=worker is not None),
            most_message_bytes=settings.max_body_bytes,
            most_values=values,
            tls=self._security.tls,
            stream_unanswered_texts=settings.max_stream_texts,
            stream_seconds=settings.grpc_max_connection_age_seconds,
        )
        limits = http_limits or HttpLimits(affordable_connections(), settings.http_max_connections_per_address)
        arrivals = Arrivals(HTTP_TURNS, lambda: self._load_shedder.busy)
        reader = RequestReader(
            settings.max_body_bytes, settings.request_timeout_seconds, limits, metrics.http_connections, arrivals
        )
        parser, parameters = BodyParser(values), ParameterReader(reader, self._sandbox, values)
        translator = SegmentTranslator(dispatcher, models, self._security.authenticator)
        self._documents = (
            None if state is None else BackgroundDocuments(state, settings, translator, metrics, self._sandbox)
        )
        document_reader = RequestReader(
            # A form is somewhat larger than its file.
            settings.document_max_bytes + settings.max_body_bytes,
            settings.request_timeout_seconds,
            limits,
            metrics.http_connections,
            arrivals,
            most_largest=MOST_LARGEST_DOCUMENTS,
        )
        jobs = None if self._documents is None else self._documents.jobs
        parts = DocumentParts(jobs, translator, ParameterReader(document_reader, self._sandbox, values))
        http_api = HttpApi(
            dispatcher,
            models,
            self.lifecycle,
            metrics,
            reload=self.reloader.reload if worker is None else worker.reload,
            read_metrics=self._read_metrics if worker is None else worker.read_metrics,
            reader=reader,
            parser=parser,
            documents=HttpDocuments(jobs, translator, parts.reader),
            glossaries=HttpGlossaries(glossaries, reader, glossary_files),
            open_inference=OpenInferenceHttp(open_inference, reader, parser),
            deepl=self._deepl(dispatcher, parameters, glossaries, glossary_files, parts),
            libretranslate=self._libretranslate(dispatcher, parameters, parts),
            authenticator=self._security.authenticator,
            load_shedder=self._load_shedder,
            admin_authenticator=self._security.admin_authenticator,
            keys=None if self._security.store is None else HttpKeys(self._security.store, self._security, reader),
            open_metrics=settings.open_metrics,
            cors_origins=settings.cors_origins,
            page=settings.page,
        )
        self.http_app = http_api.build()
        tls = self._security.tls
        self._http = HttpServer(
            self.http_app,
            metrics.http_connections,
            limits,
            None if tls is None else tls.http_context(),
            shared=worker is not None,
        )
        self._started_seconds = time.monotonic()
        self.http_port = 0
        self.grpc_port = 0
        self.ready = asyncio.Event()

    def _deepl(
        self,
        dispatcher: Dispatcher,
        reader: ParameterReader,
        glossaries: GlossaryStore | None,
        glossary_files: GlossaryReader,
        documents: DocumentParts,
    ) -> DeepLHttp | None:
        path = self._settings.deepl_path
        if path == OFF:
            return None
        return DeepLHttp(
            dispatcher,
            self.models,
            reader,
            self._security.authenticator,
            glossaries=glossaries,
            glossary_files=glossary_files,
            documents=documents,
            prefix=path.rstrip("/"),
        )

    def _libretranslate(
        self, dispatcher: Dispatcher, reader: ParameterReader, documents: DocumentParts
    ) -> LibreTranslateHttp | None:
        path = self._settings.libretranslate_path
        if path == OFF:
            return None
        return LibreTranslateHttp(
            dispatcher,
            self.models,
            reader,
            self._security.authenticator,
            documents=documents,
            prefix=path.rstrip("/"),
            public_url=self._settings.public_url,
            most_alternatives=self._settings.libretranslate_alternatives,
            suggestions=self._suggestions(),
            open_to_pages=not self._settings.cors_origins,
        )

    def _suggestions(self) -> SuggestionStore | None:
        if not self._settings.libretranslate_suggestions:
            return None
        if self._state is None:
            raise FileError("--libretranslate-suggestions: expected --state-dir too")
        return SuggestionStore(self._state)

    def grpc_handler(self, method: str, authorization: str) -> Any:
        """Returns the handler of a gRPC call; see `GrpcApi.handler`."""
        return self._grpc.handler(method, authorization)

    async def listen(self) -> None:
        """Opens both ports; until the models are ready, requests fail with `not_ready`.

        Does nothing in one of several processes that opens its ports later.

        Raises:
            ListenError: if a port cannot be opened.
        """
        if self._worker is not None:
            if self._worker.place.listens_at_once:
                await self._listen_with_others(self._worker)
            return
        http_socket = open_port(self._settings.host, self._settings.http_port)
        try:
            # The error of gRPC has no reason, so a plain socket tries the port first.
            open_port(self._settings.host, self._settings.grpc_port).close()
        except ListenError:
            http_socket.close()
            raise
        await self._open(http_socket, self._settings.grpc_port)

    async def _listen_with_others(self, worker: Worker) -> None:
        await self._open(worker.place.http_socket, worker.place.grpc_port)
        await self._publish_health()

    async def _open(self, http_socket: socket.socket, grpc_port: int) -> None:
        self.http_port = http_socket.getsockname()[1]
        self._http.listen(http_socket)
        self.grpc_port = await self._grpc.listen(self._settings.host, grpc_port)
        self._listening = True
        self.lifecycle.lost_interface = self._lost_interface

    def _lost_interface(self) -> str | None:
        """Returns the name of an interface that has stopped listening; None: both listen."""
        listening = {"gRPC": self._grpc.listening, "REST": self._http.listening}
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
            await self._close()

    @asynccontextmanager
    async def without_ports(self) -> AsyncIterator[None]:
        """Is ready while the block runs, for another server in front of it; then finishes accepted requests.

        Raises:
            Exception: if the service cannot become ready.
        """
        try:
            await self._become_ready()
            watching = asyncio.create_task(self._watch())
            try:
                yield
            finally:
                watching.cancel()
            await self._stop_documents()
            await self._finish_accepted()
        finally:
            await self._stop_models()

    async def _become_ready(self) -> None:
        for model in self.models:
            await self._loader.start(model)
        trim_memory()
        self.lifecycle.enter(Stage.READY)
        if self._worker is not None and not self._listening:
            await self._listen_with_others(self._worker)
        await self._publish_health()
        if self._documents is not None:
            self._documents.start()
        directions = [shown for each in self.models for shown in each.pipeline.directions.summary()]
        log.info(
            "ready" if self._worker is None else "worker_ready",
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
        """Looks regularly after what changes. A database that does not answer delays only its own work."""
        await asyncio.gather(_repeat(self._look), _repeat(self._security.synchronize))

    async def _wait_lost(self) -> str:
        """Returns the name of an interface as soon as it has stopped listening."""
        while (interface := self._lost_interface()) is None:  # noqa: ASYNC110 - a socket that is lost causes no event
            await asyncio.sleep(WATCH_SECONDS)
        log.error("interface_lost", interface=interface)
        await self._publish_health()
        return interface

    async def _look(self) -> None:
        """Publishes the health of the models and reloads changed files of certificates and keys."""
        self._security.refresh()
        self._load_shedder.watch()
        await self._publish_health()

    async def _publish_health(self) -> None:
        if self._worker is not None:
            ready = self.lifecycle.own_unready_reason() is None
            listening = self._listening and self._lost_interface() is None
            await self._worker.report(WorkerState(listening, ready, self.lifecycle.live))
        models = {each.name: each.pipeline.readiness.ready for each in self.models}
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
        self._http.stop_accepting()
        self._grpc.drain()
        stopping = asyncio.create_task(self._grpc.leave(self._settings.drain_seconds))
        await asyncio.sleep(max(HAND_OVER_SECONDS, self._settings.lame_duck_seconds))
        try:
            async with asyncio.timeout(self._settings.drain_seconds):
                await asyncio.gather(stopping, self.lifecycle.requests.wait_none())
        except TimeoutError:
            log.warning("drain_timed_out")
        # The models still run: a connection that was idle until now may send its next request.
        await self._http.shut_down()

    async def _leave(self) -> None:
        await self._stop_documents()
        if self._worker is not None and self._worker.replaced:
            await self._hand_over()
        else:
            await self._drain()

    async def _drain(self) -> None:
        unhealthy = self._grpc.set_serving(serving=False, models=dict.fromkeys(self.models.names, False))
        await run_lame_duck(self.lifecycle, unhealthy, self._settings.lame_duck_seconds)
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
                await self.lifecycle.requests.wait_none()
        except TimeoutError:
            log.warning("drain_timed_out", **load())

    async def _close(self) -> None:
        await self._stop_models()
        if self._listening:
            await asyncio.gather(self._grpc.stop(GRPC_GRACE_SECONDS), self._http.shut_down())
        log.info("stopped")

    async def _stop_documents(self) -> None:
        """Gives the jobs back: another process, or this server after its next start, translates them."""
        if self._documents is not None:
            await self._documents.stop()

    async def _stop_models(self) -> None:
        self.lifecycle.enter(Stage.DRAINING)
        self._grpc.drain()
        await self._stop_documents()
        await self.reloader.stop()
        await self.models.stop()
        await self._security.close()
        self._sandbox.close()
        if self._state is not None:
            self._state.close()


async def _repeat(work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        try:
            await work()
        except Exception:  # if the watch ended, what it watches would never change
            log.exception("watch_failed")


def _version_of_any(*distributions: str) -> str:
    """Returns the version of the first installed distribution; empty if none is installed."""
    for distribution in distributions:
        with suppress(PackageNotFoundError):
            return version(distribution)
    return ""
