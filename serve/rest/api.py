"""The REST server: routes, probes, metrics, and the middleware around every request.

Errors travel as exceptions to `RequestRecorder`, which records every request, authenticates it, sheds load, and writes
errors in the format of the called interface.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import TypeAdapter
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.compat.deepl.http import DeepLHttp
from serve.compat.libretranslate.http import LibreTranslateHttp
from serve.compat.open_inference import http as open_inference_http
from serve.compat.open_inference.http import OpenInferenceHttp
from serve.documents_api.http import HttpDocuments
from serve.edge.auth import Authenticator
from serve.edge.bodies import (
    AttentionBody,
    Body,
    DetectBody,
    ScoreBody,
    TranslateBody,
)
from serve.edge.body_parser import BodyParser
from serve.edge.events import TRANSLATION_EVENTS, EventStream
from serve.edge.form_parser import media_type_of
from serve.edge.interface import Interface
from serve.edge.large_answers import write_json
from serve.edge.load_shedding import ADMISSION, LoadShedder
from serve.edge.problems import TIMINGS_HEADER, TimedResponse, service_problem
from serve.edge.reader import TIMEOUT_HEADER, RequestReader, unless_disconnected
from serve.edge.retry_after import RETRY_AFTER_HEADER
from serve.edge.route_table import HIDDEN, MODELS, OPERATION, Route, RouteGroup, described_by_name
from serve.errors import InvalidRequestError, ServiceError, UnauthorizedError
from serve.host.client_address import network_of
from serve.http.connection import CERTIFIED
from serve.http.problem import REQUEST_ID_HEADER, http_problem
from serve.keys.account import Account
from serve.observability.logs import RecordedRequest, RequestRecord, choose_request_id
from serve.observability.metrics import ServiceMetrics
from serve.observability.request_metrics import Method
from serve.page.static_files import build_static
from serve.registry.dispatcher import Dispatcher
from serve.registry.lifecycle import Lifecycle
from serve.registry.registry import ModelDescription, ModelRegistry
from serve.registry.reloader import ReloadReport
from serve.rest.cross_site import CrossSiteGuard
from serve.rest.description import describe_models, describe_probes, describe_texts
from serve.rest.documentation import Documentation
from serve.rest.glossaries import HttpGlossaries
from serve.rest.headers import headers_of
from serve.rest.keys import KEYS_PATH, HttpKeys
from serve.rest.routes import Routes
from serve.translation.attention import AttentionRequest, AttentionResponse
from serve.translation.detection import DetectResponse
from serve.translation.request import ScoreRequest, TranslateRequest
from serve.translation.response import ScoreResponse, TranslationResponse

MODELS_PATH = "/v1/models"
RELOAD_PATH = "/v1/admin/reload"
# Key of the request state: the `Interface` of the request.
INTERFACE = "interface"
# Paths whose interface is remembered; clients may ask for any path.
KNOWN_PATHS = 256
_REQUEST_ID = REQUEST_ID_HEADER.encode()

_MODELS = TypeAdapter(dict[str, tuple[ModelDescription, ...]])
_MODEL = TypeAdapter(ModelDescription)
_REPORT = TypeAdapter(ReloadReport)


class HttpModels:
    """Handlers of the model routes."""

    def __init__(self, models: ModelRegistry, reload: Callable[[], Awaitable[ReloadReport]], *, reloads: bool) -> None:
        """Creates the handlers; `reloads`: whether there is a route for reloads."""
        self._models = models
        self._reload = reload
        self._reloads = reloads

    @property
    def routes(self) -> RouteGroup:
        """The routes."""
        routes = [
            Route("GET", MODELS_PATH, self.list_models),
            Route("GET", f"{MODELS_PATH}/{{name:path}}", self.get_model),
        ]
        if self._reloads:
            routes.append(Route("POST", RELOAD_PATH, self.reload))
        return RouteGroup(tuple(routes), described_by_name(describe_models), MODELS)

    async def list_models(self) -> Response:
        """Lists models that exist at startup even while they load, and models added later once they are ready."""
        return Response(_MODELS.dump_json({"models": self._models.describe()}), media_type="application/json")

    async def get_model(self, name: str) -> Response:
        """Returns state, directions and limits of the model."""
        return Response(_MODEL.dump_json(self._models.get(name).describe()), media_type="application/json")

    async def reload(self) -> Response:
        """Responds after every model is loaded and verified, or has failed.

        If a model fails, the status is 422 and the model that ran before stays in service.
        """
        report = await self._reload()
        status = HTTPStatus.UNPROCESSABLE_ENTITY if report.failures else HTTPStatus.OK
        return Response(_REPORT.dump_json(report, exclude_none=True), status, media_type="application/json")


class RequestRecorder:
    """ASGI middleware: records and guards every request except probes, and converts errors to problem documents."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: ServiceMetrics,
        lifecycle: Lifecycle,
        authenticator: Authenticator,
        admin_authenticator: Authenticator | None,
        cross_site: CrossSiteGuard,
        load_shedder: LoadShedder,
        open_paths: frozenset[str],
        interfaces: Sequence[Interface],
    ) -> None:
        """Wraps an application.

        `open_paths` (probes) are neither recorded nor guarded. The first of `interfaces` that owns a path answers its
        errors; the last one owns all paths. Connections close after a response while `lifecycle` is leaving.
        `admin_authenticator` guards the path of reloads. Without API keys, `cross_site` guards the paths that are not
        open to pages.
        """
        self._app = app
        self._cross_site = cross_site
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._authenticator = authenticator
        self._admin_authenticator = admin_authenticator
        self._load_shedder = load_shedder
        self._open_paths = open_paths
        self._find_interface = lru_cache(KNOWN_PATHS)(partial(_find_interface, interfaces))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http" or (scope["method"] in ("GET", "HEAD") and scope["path"] in self._open_paths):
            await self._app(scope, receive, send)
            return
        headers = headers_of(scope)
        request_id = choose_request_id(headers.get(REQUEST_ID_HEADER))
        interface, method = self._find_interface(scope["path"])
        state = scope["state"]
        state[INTERFACE] = interface
        own_headers = [(_REQUEST_ID, request_id.encode())]
        own_headers += [(name.encode(), value.encode()) for name, value in interface.headers(request_id).items()]
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] += own_headers
                if self._lifecycle.leaving:
                    # Otherwise a client may send its next request over a connection that is about to close.
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            client = scope["client"]
            network = "" if client is None else network_of(client[0])
            with RecordedRequest(self._metrics, "rest", method, request_id, headers, network=network) as record:
                state["record"] = record
                # Starlette's routes match a path with a line feed at its end, which is no path of this module.
                if scope["path"].endswith("\n"):
                    raise InvalidRequestError("path", "expected no line feed at its end")
                self._authenticator.check_certificate(shown=state.get(CERTIFIED, False))
                if not self._authenticator.has_keys and not interface.is_open_to_pages(scope["path"]):
                    self._cross_site.check(scope["method"], headers)
                if not interface.reads_keys:
                    record.account = self._check_key(scope["path"], headers)
                with self._load_shedder.expect(record, method) as state[ADMISSION]:
                    await self._app(scope, receive, send_with_headers)
        except ServiceError as error:
            if started:  # the response is incomplete: the server closes the connection
                return
            await interface.write_error(error, request_id)(scope, receive, send_with_headers)

    def _check_key(self, path: str, headers: Headers) -> Account | None:
        """Returns the account of a request; raises UnauthorizedError if its key is missing, wrong or ambiguous."""
        keys = headers.getlist("authorization")
        if len(keys) > 1:
            raise UnauthorizedError(f"authorization: expected one header field, got {len(keys)}")
        admin = self._admin_authenticator
        if admin is not None and (path == RELOAD_PATH or path.startswith((KEYS_PATH, f"{KEYS_PATH}/"))):
            admin.check_key(*keys)
            return None
        return self._authenticator.check_key(*keys)


def _find_interface(interfaces: Sequence[Interface], path: str) -> tuple[Interface, Method]:
    """Returns the interface that owns a path, and the label of the path in the metrics."""
    interface = next(each for each in interfaces if each.owns(path))
    return interface, interface.find_method(path) or "other"


async def answer_http_exception(request: Request, error: HTTPException) -> Response:
    """Exception handler: responds to an HTTP error, such as an unknown path or method."""
    record = record_of(request)
    record.outcome = InvalidRequestError.reason
    interface: Interface = request.scope["state"][INTERFACE]
    return interface.write_http_error(error, record.request_id)


def record_of(request: Request) -> RequestRecord:
    """Returns the record of a request."""
    record: RequestRecord = request.scope["state"]["record"]
    return record


TRANSLATE_PATH = "/v1/translate"
STREAM_PATH = "/v1/translate/stream"
SCORE_PATH = "/v1/score"
ATTENTION_PATH = "/v1/attention"
DETECT_PATH = "/v1/detect"
METHODS: dict[str, Method] = {
    TRANSLATE_PATH: "translate",
    STREAM_PATH: "translate_stream",
    SCORE_PATH: "score",
    ATTENTION_PATH: "attention",
}
METRICS_PATH = "/metrics"


class RestInterface:
    """The own REST interface, which answers errors with problem documents."""

    reads_keys = False

    def owns(self, path: str) -> bool:  # noqa: ARG002 - it owns what no other interface does
        """Returns true."""
        return True

    def find_method(self, path: str) -> Method | None:
        """Returns the label of a path in the metrics; None: it needs no model."""
        return METHODS.get(path)

    def is_open_to_pages(self, path: str) -> bool:  # noqa: ARG002 - no path is
        """Returns false."""
        return False

    def headers(self, request_id: str) -> Mapping[str, str]:  # noqa: ARG002 - the id is in its own header
        """Returns no headers."""
        return {}

    def write_error(self, error: ServiceError, request_id: str) -> Response:
        """Returns the response to a failed request."""
        return service_problem(error, request_id)

    def write_http_error(self, error: HTTPException, request_id: str) -> Response:
        """Returns the response to an HTTP error."""
        return http_problem(error, request_id)


PROBE_PATHS = frozenset({"/healthz", "/readyz", METRICS_PATH}) | open_inference_http.PROBE_PATHS
# Headers that browsers may send and read, in addition to those named elsewhere.
CORS_REQUEST_HEADERS = ("authorization", "content-type", "traceparent")
CORS_ANSWER_HEADERS = (RETRY_AFTER_HEADER,)

AnyResponse = TypeVar("AnyResponse", TranslationResponse, ScoreResponse, AttentionResponse)

_TRANSLATIONS = TypeAdapter(TranslationResponse)
_SCORES = TypeAdapter(ScoreResponse)
_ATTENTIONS = TypeAdapter(AttentionResponse)
_DETECTIONS = TypeAdapter(DetectResponse)


class HttpApi:
    """Builds the REST application; its methods are the handlers."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        models: ModelRegistry,
        lifecycle: Lifecycle,
        metrics: ServiceMetrics,
        *,
        reload: Callable[[], Awaitable[ReloadReport]],
        read_metrics: Callable[[], Awaitable[bytes]],
        reader: RequestReader,
        parser: BodyParser,
        documents: HttpDocuments,
        glossaries: HttpGlossaries,
        open_inference: OpenInferenceHttp,
        deepl: DeepLHttp | None,
        libretranslate: LibreTranslateHttp | None,
        authenticator: Authenticator,
        load_shedder: LoadShedder,
        admin_authenticator: Authenticator | None,
        keys: HttpKeys | None,
        open_metrics: bool,
        cors_origins: Sequence[str] = (),
        page: bool = False,
    ) -> None:
        """Builds the routers of models, documents, glossaries, the Open Inference Protocol and the page.

        Requires at least one model. `deepl` and `libretranslate` may be switched off. `reload` and `read_metrics` are
        for all processes of the service. Without `admin_authenticator` there are no routes for reloads and `keys`. With
        `open_metrics`, `/metrics` needs no key. Pages of `cors_origins` may send requests from a browser. With `page`,
        `/` is a page for people.
        """
        self._dispatcher = dispatcher
        self._models = models
        self._lifecycle = lifecycle
        self._metrics = metrics
        direction = next(iter(next(iter(models)).pipeline.directions))
        self._documentation = Documentation(lambda: self._groups)
        static = build_static(page=page)
        pages = ((path, file.answer) for path, file in static.files.items())
        self._groups = (
            RouteGroup(tuple(self._routes()), described_by_name(partial(describe_texts, direction))),
            HttpModels(models, reload, reloads=admin_authenticator is not None).routes,
            documents.routes,
            glossaries.routes,
            open_inference.routes,
            RouteGroup(tuple(Route("GET", *each) for each in pages), lambda _: HIDDEN),
            *([] if keys is None or admin_authenticator is None else [keys.routes]),
            *([] if deepl is None else [deepl.routes]),
            *([] if libretranslate is None else [libretranslate.routes(self._documentation.read)]),
            RouteGroup(tuple(self._probes()), described_by_name(describe_probes), OPERATION),
            self._documentation.routes,
        )
        self._read_metrics = read_metrics
        # DeepL owns some paths below /v2.
        known = (deepl, libretranslate, open_inference, RestInterface())
        self._interfaces = [each for each in known if each is not None]
        self._reader = reader
        self._parser = parser
        self._authenticator = authenticator
        self._admin_authenticator = admin_authenticator
        self._load_shedder = load_shedder
        self._open_paths = static.open_paths | (PROBE_PATHS if open_metrics else PROBE_PATHS - {METRICS_PATH})
        self._cors_origins = cors_origins

    def build(self) -> ASGIApp:
        """Returns the application."""
        routes = [each for group in self._groups for each in group.routes]
        return self._guarded(Routes(routes, answer_http_exception))

    def _routes(self) -> Iterator[Route]:
        yield Route("POST", TRANSLATE_PATH, self.translate)
        yield Route("POST", STREAM_PATH, self.translate_stream)
        yield Route("POST", SCORE_PATH, self.score)
        yield Route("POST", ATTENTION_PATH, self.attend)
        yield Route("POST", DETECT_PATH, self.detect)

    def _probes(self) -> Iterator[Route]:
        yield Route("GET", "/healthz", self.healthz)
        yield Route("GET", "/readyz", self.readyz)
        yield Route("GET", METRICS_PATH, self.read_metrics)

    def _guarded(self, app: ASGIApp) -> ASGIApp:
        """Returns an application behind everything that happens around a request."""
        recorder = RequestRecorder(
            app,
            metrics=self._metrics,
            lifecycle=self._lifecycle,
            authenticator=self._authenticator,
            admin_authenticator=self._admin_authenticator,
            cross_site=CrossSiteGuard(self._cors_origins),
            load_shedder=self._load_shedder,
            open_paths=self._open_paths,
            interfaces=self._interfaces,
        )
        if not self._cors_origins:
            return recorder
        return CORSMiddleware(
            recorder,
            allow_origins=self._cors_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=(*CORS_REQUEST_HEADERS, REQUEST_ID_HEADER, TIMEOUT_HEADER),
            expose_headers=(*CORS_ANSWER_HEADERS, REQUEST_ID_HEADER, TIMINGS_HEADER),
        )

    async def translate(self, request: Request) -> Response:
        """Translates each text independently of the others."""
        asked = await self._receive_texts(request)
        return await _answer(request, self._dispatcher.translate(asked, record_of(request)), _TRANSLATIONS)

    async def translate_stream(self, request: Request) -> Response:
        """The deltas of a text, in order, form its translation. The last event holds what `/v1/translate` returns.

        With `beam_size` or `hypotheses` above 1, a translation is one delta. An error before the first event sets the
        HTTP status; a later error is an event.
        """
        asked = await self._receive_texts(request)
        return await EventStream.begin(request, self._dispatcher.stream(asked, record_of(request)), TRANSLATION_EVENTS)

    async def score(self, request: Request) -> Response:
        """Scores each translation by forced decoding."""
        body, deadline_seconds = await self._receive(request, ScoreBody)
        asked = ScoreRequest(**{**vars(body), "pairs": body.texts}, deadline_seconds=deadline_seconds)
        return await _answer(request, self._dispatcher.score(asked, record_of(request)), _SCORES)

    async def attend(self, request: Request) -> Response:
        """Reads the attention by forced decoding. The response has the numbers of `layers` and `heads`."""
        body, deadline_seconds = await self._receive(request, AttentionBody)
        asked = AttentionRequest(**{**vars(body), "pairs": body.texts}, deadline_seconds=deadline_seconds)
        return await _answer(request, self._dispatcher.attend(asked, record_of(request)), _ATTENTIONS)

    async def detect(self, request: Request) -> Response:
        """Detects the language of each text independently of the others. Reads the start of long texts."""
        body, deadline_seconds = await self._receive(request, DetectBody)
        response = await unless_disconnected(request, self._dispatcher.detect(body.text, deadline_seconds))
        return Response(_DETECTIONS.dump_json(response), media_type="application/json")

    async def healthz(self) -> Response:
        """Responds with 200 while the event loop runs, also in warm-up and shutdown; with 503 if a model hangs."""
        if self._lifecycle.live:
            return JSONResponse({"status": "live"})
        return JSONResponse({"status": "hanging"}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def readyz(self, request: Request) -> Response:
        """Responds with 503 during warm-up, after a failure of a model, and after the stop signal."""
        reason = self._lifecycle.unready_reason()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return service_problem(reason, choose_request_id(request.headers.get(REQUEST_ID_HEADER)))

    async def read_metrics(self, request: Request) -> Response:
        """Returns the metrics of the service and of the process."""
        try:
            return Response(await self._read_metrics(), media_type=CONTENT_TYPE_LATEST)
        except ServiceError as error:
            return service_problem(error, choose_request_id(request.headers.get(REQUEST_ID_HEADER)))

    async def _receive_texts(self, request: Request) -> TranslateRequest:
        body, deadline_seconds = await self._receive(request, TranslateBody)
        fields = {**vars(body), "terms": [each.entry for each in body.terms]}
        return TranslateRequest(**fields, deadline_seconds=deadline_seconds)

    async def _receive(self, request: Request, kind: type[Body]) -> tuple[Body, float]:
        """Returns the parsed body of a request, and its deadline on the monotonic clock."""
        _check_content_type(request)
        data, deadline_seconds = await self._reader.read(request)
        return await self._parser.parse(data, kind, deadline_seconds), deadline_seconds


def _check_content_type(request: Request) -> None:
    media_type = media_type_of(request.headers.get("content-type", ""))
    if media_type != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content-type: expected application/json")


async def _answer(
    request: Request, work: Coroutine[Any, Any, AnyResponse], adapter: TypeAdapter[AnyResponse]
) -> Response:
    response = await unless_disconnected(request, work)
    return TimedResponse(await write_json(response, adapter), response.timings)
