"""Builds the interfaces of a service from what they share."""

import platform
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, ProcessCollector
from starlette.types import ASGIApp

from dragoman.serve.callbacks.hosts import CallbackHosts
from dragoman.serve.callbacks.sender import CallbackSender
from dragoman.serve.callbacks.signature import read_secrets
from dragoman.serve.compat.deepl.http import DeepLHttp
from dragoman.serve.compat.google.http import GoogleHttp
from dragoman.serve.compat.libretranslate.http import LibreTranslateHttp
from dragoman.serve.compat.microsoft.http import MicrosoftHttp
from dragoman.serve.compat.open_inference import http as open_inference_http
from dragoman.serve.compat.open_inference.grpc import OpenInferenceGrpc
from dragoman.serve.compat.open_inference.http import OpenInferenceHttp
from dragoman.serve.compat.open_inference.protocol import OpenInference
from dragoman.serve.compat.texts import CompatibleTexts
from dragoman.serve.documents.job import JobLimits
from dragoman.serve.documents.job_store import JobStore
from dragoman.serve.documents.job_worker import JobWorker
from dragoman.serve.documents.jobs import DocumentJobs
from dragoman.serve.documents.reader import DocumentReader
from dragoman.serve.documents_api.http import HttpDocuments
from dragoman.serve.documents_api.translator import DocumentParts, SegmentTranslator
from dragoman.serve.edge.auth import Security
from dragoman.serve.edge.interface import Interface
from dragoman.serve.edge.load_shedding import HTTP_ITERATIONS, Arrivals, LoadShedder, Processor
from dragoman.serve.edge.parameters import ParameterReader
from dragoman.serve.edge.reader import MAX_LARGEST_BODIES, RequestReader
from dragoman.serve.edge.route_table import HIDDEN, Route, RouteGroup
from dragoman.serve.edge.value_limit import max_values
from dragoman.serve.glossaries.reader import GlossaryReader
from dragoman.serve.glossaries.store import GlossaryStore
from dragoman.serve.grpc.api import GrpcApi, GrpcLimits
from dragoman.serve.grpc.options import channel_options
from dragoman.serve.host.files import FileError
from dragoman.serve.host.state import State
from dragoman.serve.http.limits import HttpLimits
from dragoman.serve.keys.accounts import KeyMetrics
from dragoman.serve.memory.corrections import CorrectionStore
from dragoman.serve.memory.store import MemoryStore
from dragoman.serve.observability.log_writer import LOG_WRITER
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.page.assets import build_static
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.registry.keeper import ModelKeeper
from dragoman.serve.registry.lifecycle import Lifecycle
from dragoman.serve.registry.on_demand import OnDemand
from dragoman.serve.registry.registry import ModelRegistry
from dragoman.serve.registry.reloader import ReloadReport
from dragoman.serve.rest.api import build_app
from dragoman.serve.rest.cross_site import CrossSiteGuard
from dragoman.serve.rest.documentation import Documentation
from dragoman.serve.rest.glossaries import HttpGlossaries
from dragoman.serve.rest.interface import RestInterface
from dragoman.serve.rest.keys import HttpKeys
from dragoman.serve.rest.memories import HttpMemories
from dragoman.serve.rest.models import HttpModels
from dragoman.serve.rest.probes import HEALTH_PATHS, METRICS_PATH, HttpProbes
from dragoman.serve.rest.recorder import Guard
from dragoman.serve.rest.texts import HttpTexts
from dragoman.serve.runtime.driver import GpuCollector
from dragoman.serve.sandbox.sandbox import Sandbox
from dragoman.serve.settings import OFF, ServeSettings

# Documents that are being received at once take at most as much memory as this many of the largest ones.
MAX_LARGEST_DOCUMENTS = 8


@dataclass(frozen=True, slots=True)
class Core:
    """What the interfaces share.

    Attributes:
        state: what outlives the process; None: there are no documents, glossaries and stored keys.
        glossaries, memories: None: there is no state.
        corrections: None: none are stored.
        on_demand: None: no model is fetched.
        max_values: of a message or a body.
    """

    settings: ServeSettings
    models: ModelRegistry
    metrics: ServiceMetrics
    state: State | None
    security: Security
    lifecycle: Lifecycle
    load_shedder: LoadShedder
    sandbox: Sandbox
    glossaries: GlossaryStore | None
    memories: MemoryStore | None
    corrections: CorrectionStore | None
    on_demand: OnDemand | None
    dispatcher: Dispatcher
    max_values: int


def build_core(
    settings: ServeSettings, keeper: ModelKeeper, metrics: ServiceMetrics, state: State | None, sandbox: Sandbox
) -> Core:
    """Builds what the interfaces share.

    Raises FileError if a file of certificates or keys is invalid, SystemExit if the admin key is invalid.
    """
    models = keeper.models
    security, lifecycle = Security.open(settings, state), Lifecycle(metrics, models)
    _register_collectors(metrics, models)
    if settings.key_metrics:
        metrics.registry.register(KeyMetrics(security.accounts))
    for option in ("memory", "corrections", "callback_hosts"):
        if state is None and getattr(settings, option):
            raise FileError(f"--{option.replace('_', '-')}: expected --state-dir too")
    glossaries = None if state is None else GlossaryStore(state)
    memories = None if state is None else MemoryStore(state)
    source = settings.model_source()
    on_demand = None if source is None else OnDemand(source, keeper, settings)
    return Core(
        settings,
        models,
        metrics,
        state,
        security,
        lifecycle,
        LoadShedder(lambda: models.rows, Processor().busy_share),
        sandbox,
        glossaries,
        memories,
        CorrectionStore(state, settings.memory) if state is not None and settings.corrections else None,
        on_demand,
        Dispatcher(
            keeper,
            lifecycle,
            settings.request_timeout_seconds,
            glossaries,
            on_demand,
            memories=memories,
            memory=settings.memory,
        ),
        max_values(max(limits.max_texts for limits in (settings, *settings.models.values()))),
    )


def _register_collectors(metrics: ServiceMetrics, models: ModelRegistry) -> None:
    """Adds the metrics of the process, the interpreter, the log and the devices."""
    ProcessCollector(registry=metrics.registry)
    metrics.registry.register(GC_COLLECTOR)
    metrics.registry.register(PLATFORM_COLLECTOR)
    metrics.registry.register(LOG_WRITER)
    if any(model.settings.device == "cuda" for model in models):
        metrics.registry.register(GpuCollector())
    metrics.set_build(
        {
            "version": version("dragoman"),
            "python": platform.python_version(),
            "onnxruntime": _version_of_any("onnxruntime", "onnxruntime-gpu"),
        }
    )


def _version_of_any(*distributions: str) -> str:
    """Returns the version of the first installed distribution; empty if none is installed."""
    for distribution in distributions:
        with suppress(PackageNotFoundError):
            return version(distribution)
    return ""


def build_grpc(core: Core, *, shared: bool) -> GrpcApi:
    """Builds the gRPC server; `shared`: other processes listen at the same port."""
    settings = core.settings
    open_inference = OpenInference(core.dispatcher, core.models, core.lifecycle)
    return GrpcApi(
        core.dispatcher,
        core.models,
        core.metrics,
        [OpenInferenceGrpc(open_inference, core.metrics, core.max_values)],
        core.corrections,
        security=core.security,
        load_shedder=core.load_shedder,
        limits=GrpcLimits(
            channel_options(settings, shared=shared),
            message_bytes=settings.max_body_bytes,
            values=core.max_values,
            stream_texts=settings.max_stream_texts,
            stream_seconds=settings.grpc_max_connection_age_seconds,
        ),
    )


def build_documents(core: Core, translator: SegmentTranslator) -> JobWorker | None:
    """Builds the jobs of documents and their worker; None: there is no state. Raises FileError as `build_core`."""
    if core.state is None:
        return None
    settings = core.settings
    limits = JobLimits(
        document_bytes=settings.document_max_bytes,
        unpacked_bytes=settings.document_max_unpacked_bytes,
        jobs=settings.documents_max_count,
        store_bytes=settings.documents_max_bytes,
        keep_seconds=settings.documents_keep_seconds,
    )
    jobs = DocumentJobs(JobStore(core.state, limits), limits, DocumentReader(core.sandbox, limits))
    worker = JobWorker(jobs, translator, core.metrics.count_document)
    if settings.callback_hosts:
        hosts, secrets = CallbackHosts(settings.callback_hosts), read_secrets(settings.callback_secret_file)
        worker.others.append(CallbackSender(jobs.store, hosts, secrets, core.metrics.count_callback).run)
    return worker


class RestBuilder:
    """Builds the REST application: all interfaces that share its port."""

    def __init__(
        self, core: Core, documents: JobWorker | None, translator: SegmentTranslator, limits: HttpLimits
    ) -> None:
        self._core = core
        settings = core.settings
        self._arrivals = Arrivals(HTTP_ITERATIONS, lambda: core.load_shedder.busy)
        self._limits = limits
        self._reader = self._request_reader(settings.max_body_bytes)
        self._parameters = ParameterReader(self._reader, core.sandbox, core.max_values)
        # A form is somewhat larger than its file.
        self._document_reader = self._request_reader(
            settings.document_max_bytes + settings.max_body_bytes, MAX_LARGEST_DOCUMENTS
        )
        jobs = None if documents is None else documents.jobs
        self._documents = DocumentParts(
            jobs, translator, ParameterReader(self._document_reader, core.sandbox, core.max_values)
        )
        self._glossary_files = GlossaryReader(core.sandbox)

    def _request_reader(self, max_body_bytes: int, max_largest: int = MAX_LARGEST_BODIES) -> RequestReader:
        return RequestReader(
            max_body_bytes,
            self._core.settings.request_timeout_seconds,
            self._limits,
            self._core.metrics.http_connections,
            self._arrivals,
            max_largest=max_largest,
        )

    def build(
        self, reload: Callable[[], Awaitable[ReloadReport]], read_metrics: Callable[[], Awaitable[bytes]]
    ) -> ASGIApp:
        """Returns the application; `reload` and `read_metrics` are for all processes of the service."""
        core = self._core
        security, settings = core.security, core.settings
        open_inference = OpenInferenceHttp(
            OpenInference(core.dispatcher, core.models, core.lifecycle), self._reader, core.max_values
        )
        compatible, libretranslate = list(self._compatible()), self._libretranslate()
        static = build_static(page=settings.page)
        groups = list[RouteGroup]()
        documentation = Documentation(lambda: groups)
        groups += [
            *self._own_routes(reload),
            open_inference.routes,
            RouteGroup(tuple(Route("GET", path, file.answer) for path, file in static.files.items()), lambda _: HIDDEN),
            *self._key_routes(),
            *(interface.routes for interface in compatible),
            *([] if libretranslate is None else [libretranslate.routes(documentation.read)]),
            HttpProbes(core.lifecycle, read_metrics).routes,
            documentation.routes,
        ]
        # DeepL owns some paths below /v2.
        known: Sequence[Interface | None] = (*compatible, libretranslate, open_inference, RestInterface())
        open_paths = static.open_paths | HEALTH_PATHS | open_inference_http.PROBE_PATHS
        return build_app(
            groups,
            [interface for interface in known if interface is not None],
            Guard(
                core.metrics,
                core.lifecycle,
                security.authenticator,
                security.admin_authenticator,
                core.load_shedder,
                CrossSiteGuard(settings.cors_origins),
            ),
            open_paths | {METRICS_PATH} if settings.open_metrics else open_paths,
            settings.cors_origins,
        )

    def _own_routes(self, reload: Callable[[], Awaitable[ReloadReport]]) -> list[RouteGroup]:
        core, documents = self._core, self._documents
        direction = next(iter(next(iter(core.models)).directions))
        reloads, readers = core.security.admin_authenticator is not None, (self._reader, self._document_reader)
        return [
            HttpTexts(core.dispatcher, direction, self._reader, core.max_values).routes,
            HttpModels(core.models, reload, reloads=reloads).routes,
            HttpDocuments(documents, CallbackHosts(core.settings.callback_hosts)).routes,
            HttpGlossaries(core.glossaries, self._reader, self._glossary_files).routes,
            HttpMemories(core.memories, core.corrections, core.sandbox, readers).routes,
        ]

    def _key_routes(self) -> list[RouteGroup]:
        security = self._core.security
        if security.store is None or security.admin_authenticator is None:
            return []
        return [HttpKeys(security.store, security, self._reader).routes]

    def _compatible(self) -> Iterator[DeepLHttp | GoogleHttp | MicrosoftHttp]:
        """Yields the interfaces of other servers that are on, but for that of LibreTranslate."""
        core, settings = self._core, self._core.settings
        authenticator = core.security.authenticator
        texts = CompatibleTexts(core.dispatcher, core.models, placeholders=settings.compatible_placeholders)
        if (path := settings.deepl_path) != OFF:
            yield DeepLHttp(
                core.dispatcher,
                texts,
                self._parameters,
                authenticator,
                glossaries=core.glossaries,
                glossary_files=self._glossary_files,
                documents=self._documents,
                prefix=path.rstrip("/"),
            )
        if (path := settings.google_path) != OFF:
            yield GoogleHttp(core.dispatcher, texts, self._parameters, authenticator, path.rstrip("/"))
        if (path := settings.microsoft_path) != OFF:
            prefix, values = path.rstrip("/"), core.max_values
            yield MicrosoftHttp(core.dispatcher, texts, self._reader, authenticator, max_values=values, prefix=prefix)

    def _libretranslate(self) -> LibreTranslateHttp | None:
        core, settings = self._core, self._core.settings
        if settings.libretranslate_path == OFF:
            return None
        return LibreTranslateHttp(
            core.dispatcher,
            core.models,
            self._parameters,
            core.security.authenticator,
            settings,
            documents=self._documents,
            corrections=core.corrections,
        )
