"""The REST interface: JSON to requests, deadlines, disconnects and status codes; probes, metrics and documentation.

Nothing is decided here about translation: requests go to the dispatcher. Errors travel as exceptions to
`serve.api.http_api`, which counts them and answers with problem documents. Built by `serve.service`.

The REST interface to the models themselves: listing them, and reading their folder again for whoever has the key.

Errors travel as exceptions to `serve.api.http_api`, which adds these handlers to its own.

What happens to every REST request on its way in and out: it is recorded, let in or not, and its error written.

Errors travel as exceptions to here, and become answers in the form of the interface that was asked. Used by
`serve.api.http_api`.
"""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.api.auth import Authenticator
from serve.api.http_body import (
    TIMEOUT_HEADER,
    Body,
    RequestReader,
    ScoreBody,
    TranslateBody,
    parse_body,
    score_documentation,
    stream_documentation,
    translate_documentation,
)
from serve.api.http_problem import (
    REQUEST_ID_HEADER,
    TIMINGS_HEADER,
    http_problem,
    problem_documentation,
    service_problem,
    timings_header,
)
from serve.api.load_shedding import LoadShedder
from serve.api.open_inference import http as open_inference_http
from serve.api.open_inference.http import OpenInferenceHttp
from serve.api.server import CERTIFIED, write_metrics
from serve.api.sse import TRANSLATION_EVENTS, EventStream, unless_disconnected
from serve.errors import InvalidRequestError, ModelNotFoundError, ServiceError, UnauthorizedError
from serve.observability.logs import RequestRecord, choose_request_id, record_request
from serve.observability.metrics import Method, ServiceMetrics
from serve.registry.dispatcher import Dispatcher
from serve.registry.lifecycle import Lifecycle
from serve.registry.registry import ModelDescription, ModelRegistry
from serve.registry.reloader import Reloader, ReloadReport
from serve.translation.request import AskedDirection, AskedScore, AskedTranslation
from serve.translation.response import ScoreResponse, TranslationResponse

MODELS_PATH = "/v1/models"
RELOAD_PATH = "/v1/admin/reload"

_MODELS = TypeAdapter(dict[str, tuple[ModelDescription, ...]])
_MODEL = TypeAdapter(ModelDescription)
_REPORT = TypeAdapter(ReloadReport)


class HttpModels:
    """The handlers and what they need."""

    def __init__(self, models: ModelRegistry, reloader: Reloader, admin_authenticator: Authenticator | None) -> None:
        """Keeps what it needs.

        Args:
            models: what is listed.
            reloader: reads the folder again.
            admin_authenticator: whom it lets in may ask for that; None: nobody may.
        """
        self._models = models
        self._reloader = reloader
        self._admin_authenticator = admin_authenticator

    def build(self) -> APIRouter:
        """Returns the routes; that of the administration is among them only if there is a key."""
        router = APIRouter()
        router.get(
            MODELS_PATH,
            summary="Lists the models, in the order in which a request that names none chooses",
            response_model=dict[str, tuple[ModelDescription, ...]],
        )(self.list_models)
        router.get(
            f"{MODELS_PATH}/{{name:path}}",
            summary="Tells about one model",
            response_model=ModelDescription,
            responses=problem_documentation(ModelNotFoundError),
        )(self.get_model)
        if self._admin_authenticator is not None:
            router.post(
                RELOAD_PATH,
                summary="Reads the folder of the models again, with the header `Authorization: Bearer KEY`",
                response_model=ReloadReport,
                responses=problem_documentation(UnauthorizedError),
            )(self.reload)
        return router

    async def list_models(self) -> Response:
        """Those of the start are listed while they are loaded, later ones once they are ready."""
        return Response(_MODELS.dump_json({"models": self._models.describe()}), media_type="application/json")

    async def get_model(self, name: str) -> Response:
        """Tells state, directions and limits."""
        return Response(_MODEL.dump_json(self._models.get(name).describe()), media_type="application/json")

    async def reload(self, request: Request) -> Response:
        """Answers when every model is loaded and proven, or has failed: then with 422, and what failed goes on."""
        if self._admin_authenticator is not None:
            self._admin_authenticator.check_key(request.headers.get("authorization", ""))
        report = await self._reloader.reload()
        status = HTTPStatus.UNPROCESSABLE_ENTITY if report.failures else HTTPStatus.OK
        return Response(_REPORT.dump_json(report, exclude_none=True), status, media_type="application/json")


class RequestRecorder:
    """ASGI middleware: records and guards every request but probes, and answers errors with problem documents."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: ServiceMetrics,
        lifecycle: Lifecycle,
        authenticator: Authenticator,
        load_shedder: LoadShedder,
        open_paths: frozenset[str],
        methods: Mapping[str, Method],
    ) -> None:
        """Keeps what it needs.

        Args:
            app: answers.
            metrics: counts every request that is not a probe.
            lifecycle: tells when clients had better open new connections elsewhere.
            authenticator: decides who may ask.
            load_shedder: refuses what there is no time for.
            open_paths: of probes.
            methods: the names of methods in the metrics, by their paths.
        """
        self._app = app
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._authenticator = authenticator
        self._load_shedder = load_shedder
        self._open_paths = open_paths
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or (scope["method"] == "GET" and scope["path"] in self._open_paths):
            await self._app(scope, receive, send)
            return
        headers = Request(scope).headers
        request_id = choose_request_id(headers.get(REQUEST_ID_HEADER))
        method = self._method(scope["path"])
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"].append((REQUEST_ID_HEADER.encode(), request_id.encode()))
                if self._lifecycle.leaving:
                    # So that no client sends its next request down a connection that is about to be closed.
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            with record_request(self._metrics, "rest", method, request_id, headers) as record:
                state = scope.setdefault("state", {})
                state["record"] = record
                self._authenticator.check_certificate(shown=state.get(CERTIFIED, False))
                if scope["path"] != RELOAD_PATH:  # which has a door of its own
                    self._authenticator.check_key(headers.get("authorization", ""))
                with self._load_shedder.enter(record, method):
                    await self._app(scope, receive, send_with_headers)
        except ServiceError as error:
            if started:  # nobody reads the rest: the server closes the connection
                return
            answer = (
                open_inference_http.write_error(error)
                if _speaks_open_inference(scope["path"])
                else service_problem(error, request_id)
            )
            await answer(scope, receive, send_with_headers)

    def _method(self, path: str) -> Method:
        return self._methods.get(path) or open_inference_http.find_method(path) or "other"


async def answer_http_exception(request: Request, error: HTTPException) -> Response:
    """Answers a request whose HTTP itself is wrong; the framework calls it."""
    record = record_of(request)
    record.outcome = InvalidRequestError.reason
    if _speaks_open_inference(request.url.path):
        return open_inference_http.write_http_error(error)
    return http_problem(error, record.request_id)


def _speaks_open_inference(path: str) -> bool:
    return path == open_inference_http.PREFIX or path.startswith(f"{open_inference_http.PREFIX}/")


def record_of(request: Request) -> RequestRecord:
    """Returns what is recorded of a request."""
    record: RequestRecord = request.state.record
    return record


TRANSLATE_PATH = "/v1/translate"
STREAM_PATH = "/v1/translate/stream"
SCORE_PATH = "/v1/score"
METHODS: dict[str, Method] = {TRANSLATE_PATH: "translate", STREAM_PATH: "translate_stream", SCORE_PATH: "score"}
METRICS_PATH = "/metrics"
PROBE_PATHS = frozenset({"/healthz", "/readyz", METRICS_PATH}) | open_inference_http.PROBE_PATHS
# What browsers may send and show beside the headers that are named elsewhere.
CORS_REQUEST_HEADERS = ("authorization", "content-type", "traceparent")
CORS_ANSWER_HEADERS = ("retry-after",)
# What is shorter gets hardly any shorter.
COMPRESSED_FROM_BYTES = 1024
# The event loop waits for it: 80 KB of metrics take 2.3 ms at level 9 and become 4.9 KB, 0.24 ms and 5.5 KB at level 4.
COMPRESSION_LEVEL = 4

AnyResponse = TypeVar("AnyResponse", TranslationResponse, ScoreResponse)

_TRANSLATIONS = TypeAdapter(TranslationResponse)
_SCORES = TypeAdapter(ScoreResponse)


class HttpApi:
    """The handlers of the REST interface and what they need."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        models: ModelRegistry,
        lifecycle: Lifecycle,
        metrics: ServiceMetrics,
        *,
        reloader: Reloader,
        reader: RequestReader,
        open_inference: OpenInferenceHttp,
        authenticator: Authenticator,
        load_shedder: LoadShedder,
        admin_authenticator: Authenticator | None,
        open_metrics: bool,
        cors_origins: Sequence[str] = (),
    ) -> None:
        """Keeps what it needs.

        Args:
            dispatcher: answers requests.
            models: what is listed; at least one.
            lifecycle: answers the readiness probe.
            metrics: counts every request that is not a probe.
            reloader: reads the folder of the models again.
            reader: reads bodies and deadlines.
            open_inference: the handlers of that protocol.
            authenticator: decides who may ask for translations.
            load_shedder: refuses what there is no time for.
            admin_authenticator: decides who may have the folder read; None: nobody may.
            open_metrics: whether the door does not guard the metrics.
            cors_origins: whose pages in a browser may ask; none: nobody's.
        """
        self._dispatcher = dispatcher
        self._models = models
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._routers = (HttpModels(models, reloader, admin_authenticator).build(), open_inference.build())
        self._reader = reader
        self._authenticator = authenticator
        self._load_shedder = load_shedder
        self._open_paths = PROBE_PATHS if open_metrics else PROBE_PATHS - {METRICS_PATH}
        self._cors_origins = cors_origins

    def build(self) -> FastAPI:
        """Returns the application."""
        app = FastAPI(
            title="Dragoman",
            description="Translates text with one or more models.",
            redoc_url=None,
            redirect_slashes=False,
            # It has telemetry of its own, which knows requests by their bodies; ours is in
            # `serve.observability.traces`.
            telemetry={"tracing": False, "metrics": False, "logs": False},
            exception_handlers={HTTPException: answer_http_exception},
        )
        direction = next(iter(self._models)).pipeline.manifest.directions[0]
        app.add_middleware(
            RequestRecorder,
            metrics=self._metrics,
            lifecycle=self._lifecycle,
            authenticator=self._authenticator,
            load_shedder=self._load_shedder,
            open_paths=self._open_paths,
            methods=METHODS,
        )
        app.add_middleware(GZipMiddleware, minimum_size=COMPRESSED_FROM_BYTES, compresslevel=COMPRESSION_LEVEL)
        if self._cors_origins:
            app.add_middleware(
                CORSMiddleware,
                allow_origins=self._cors_origins,
                allow_methods=("GET", "POST"),
                allow_headers=(*CORS_REQUEST_HEADERS, REQUEST_ID_HEADER, TIMEOUT_HEADER),
                expose_headers=(*CORS_ANSWER_HEADERS, REQUEST_ID_HEADER, TIMINGS_HEADER),
            )
        app.post(
            TRANSLATE_PATH,
            summary="Translates every text of the request",
            response_model=TranslationResponse,
            responses=problem_documentation(),
            openapi_extra=translate_documentation(direction),
        )(self.translate)
        app.post(
            STREAM_PATH,
            summary="Translates every text of the request, and sends what translations grow by as it comes",
            response_class=StreamingResponse,
            responses={**stream_documentation(), **problem_documentation()},
            openapi_extra=translate_documentation(direction),
        )(self.translate_stream)
        app.post(
            SCORE_PATH,
            summary="Tells how probable given translations are",
            response_model=ScoreResponse,
            responses=problem_documentation(),
            openapi_extra=score_documentation(direction),
        )(self.score)
        for router in self._routers:
            app.include_router(router)
        app.get("/healthz", summary="Liveness: the process answers")(self.healthz)
        app.get("/readyz", summary="Readiness: a request would be translated now")(self.readyz)
        app.get(METRICS_PATH, summary="Metrics in Prometheus' text format", response_class=PlainTextResponse)(
            self.read_metrics
        )
        return app

    async def translate(self, request: Request) -> Response:
        """Texts are independent: each is answered as if it were alone."""
        asked = await self._receive_texts(request)
        return await _answer(request, self._dispatcher.translate(asked, record_of(request)), _TRANSLATIONS)

    async def translate_stream(self, request: Request) -> Response:
        """Deltas of a text, in their order, make up its translation; the last event holds what `/v1/translate` returns.

        A translation that several hypotheses compete for comes in one delta. What fails before the first event has the
        status of its problem; later, the problem is an event.
        """
        asked = await self._receive_texts(request)
        return await EventStream.begin(request, self._dispatcher.stream(asked, record_of(request)), TRANSLATION_EVENTS)

    async def score(self, request: Request) -> Response:
        """Each translation is scored as if the model had chosen its tokens itself."""
        body, deadline_seconds = await self._receive(request, ScoreBody)
        asked = AskedScore(
            pairs=[(pair.text, pair.translation) for pair in body.pairs],
            direction=AskedDirection(
                model=body.model, source_language=body.source_language, target_language=body.target_language
            ),
            deadline_seconds=deadline_seconds,
        )
        return await _answer(request, self._dispatcher.score(asked, record_of(request)), _SCORES)

    async def healthz(self) -> Response:
        """Answers as long as the event loop turns, also while warming up and shutting down; 503 if a model hangs."""
        if self._lifecycle.live:
            return JSONResponse({"status": "live"})
        return JSONResponse({"status": "hanging"}, HTTPStatus.SERVICE_UNAVAILABLE)

    async def readyz(self, request: Request) -> Response:
        """Answers 503 while warming up, after a failure of the model and from the signal to stop on."""
        reason = self._lifecycle.unready_reason()
        if reason is None:
            return JSONResponse({"status": "ready"})
        return service_problem(reason, choose_request_id(request.headers.get(REQUEST_ID_HEADER)))

    async def read_metrics(self) -> Response:
        """Holds every instrument of `serve.observability.metrics` and those of the process."""
        self._lifecycle.refresh()
        text = await asyncio.to_thread(write_metrics, self._metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    async def _receive_texts(self, request: Request) -> AskedTranslation:
        body, deadline_seconds = await self._receive(request, TranslateBody)
        return AskedTranslation(
            texts=body.text,
            direction=AskedDirection(
                model=body.model,
                source_language=body.source_language,
                target_language=body.target_language,
                allow_pivot=body.allow_pivot,
            ),
            options=body.options,
            target_prefix=body.target_prefix,
            deadline_seconds=deadline_seconds,
            split_sentences=body.split_sentences,
        )

    async def _receive(self, request: Request, kind: type[Body]) -> tuple[Body, float]:
        """Returns the body of a request and its deadline."""
        _check_content_type(request)
        data, deadline_seconds = await self._reader.read(request)
        return parse_body(data, kind), deadline_seconds


def _check_content_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content-type: expected application/json")


async def _answer(
    request: Request, work: Coroutine[Any, Any, AnyResponse], adapter: TypeAdapter[AnyResponse]
) -> Response:
    response = await unless_disconnected(request, work)
    content = adapter.dump_json(response, exclude_none=True)
    return Response(content, headers=timings_header(response.timings), media_type="application/json")
