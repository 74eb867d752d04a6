"""The REST interface: JSON to requests, deadlines, disconnects and status codes; probes, metrics and documentation.

Nothing is decided here about translation: requests go to the dispatcher. Errors travel as exceptions to
`RequestRecorder`, which counts them and answers with problem documents. Built by `serve.app`.
"""

import asyncio
import time
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.answer import ScoreResponse, TranslationResponse
from serve.asked import AskedDirection, AskedScore, AskedTranslation
from serve.dispatcher import Dispatcher
from serve.errors import (
    CancelledError,
    DeadlineExceededError,
    InvalidRequestError,
    RequestTooLargeError,
    ServiceError,
)
from serve.event_stream import EventStream, unless_disconnected
from serve.http_body import Body, ScoreBody, TranslateBody, parse_body
from serve.http_documentation import (
    MAX_TIMEOUT_MS,
    TIMEOUT_HEADER,
    score_documentation,
    stream_documentation,
    translate_documentation,
)
from serve.http_models import HttpModels
from serve.http_problem import http_problem, problem_documentation, service_problem
from serve.lifecycle import Lifecycle
from serve.logs import RequestRecord, choose_request_id, record_request
from serve.metrics import Method
from serve.models import Models
from serve.reloader import Reloader
from serve.service_metrics import ServiceMetrics

TRANSLATE_PATH = "/v1/translate"
STREAM_PATH = "/v1/translate/stream"
SCORE_PATH = "/v1/score"
METHODS: dict[str, Method] = {TRANSLATE_PATH: "translate", STREAM_PATH: "translate_stream", SCORE_PATH: "score"}
PROBE_PATHS = frozenset({"/healthz", "/readyz", "/metrics"})
REQUEST_ID_HEADER = "x-request-id"

AnyResponse = TypeVar("AnyResponse", TranslationResponse, ScoreResponse)

_TRANSLATIONS = TypeAdapter(TranslationResponse)
_SCORES = TypeAdapter(ScoreResponse)


class HttpApi:
    """The handlers of the REST interface and what they need."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        models: Models,
        lifecycle: Lifecycle,
        metrics: ServiceMetrics,
        reloader: Reloader,
        *,
        admin_key: str | None,
        max_body_bytes: int,
        default_timeout_seconds: float,
    ) -> None:
        """Keeps what it needs.

        Args:
            dispatcher: answers requests.
            models: what is listed; at least one.
            lifecycle: answers the readiness probe.
            metrics: counts every request that is not a probe.
            reloader: reads the folder of the models again.
            admin_key: who knows it may ask for that; None: nobody may.
            max_body_bytes: the largest body that is read.
            default_timeout_seconds: how long a request may take that sets no deadline, its body included.
        """
        self._dispatcher = dispatcher
        self._models = models
        self._lifecycle = lifecycle
        self._metrics = metrics
        self._routes = HttpModels(models, reloader, admin_key).build()
        self._max_body_bytes = max_body_bytes
        self._default_timeout_seconds = default_timeout_seconds

    def build(self) -> FastAPI:
        """Returns the application."""
        app = FastAPI(
            title="Dragoman",
            description="Translates text with one or more models.",
            redoc_url=None,
            redirect_slashes=False,
            exception_handlers={HTTPException: _answer_http_exception},
        )
        direction = next(iter(self._models)).pipeline.manifest.directions[0]
        app.add_middleware(RequestRecorder, metrics=self._metrics, lifecycle=self._lifecycle)
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
        app.include_router(self._routes)
        app.get("/healthz", summary="Liveness: the process answers")(self.healthz)
        app.get("/readyz", summary="Readiness: a request would be translated now")(self.readyz)
        app.get("/metrics", summary="Metrics in Prometheus' text format", response_class=PlainTextResponse)(
            self.read_metrics
        )
        return app

    async def translate(self, request: Request) -> Response:
        """Texts are independent: each is answered as if it were alone."""
        asked = await self._receive_texts(request)
        return await _answer(request, self._dispatcher.translate(asked, _record(request)), _TRANSLATIONS)

    async def translate_stream(self, request: Request) -> Response:
        """Deltas of a text, in their order, make up its translation; the last event holds what `/v1/translate` returns.

        A translation that several hypotheses compete for comes in one delta. What fails before the first event has the
        status of its problem; later, the problem is an event.
        """
        asked = await self._receive_texts(request)
        return await EventStream.begin(request, self._dispatcher.stream(asked, _record(request)))

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
        return await _answer(request, self._dispatcher.score(asked, _record(request)), _SCORES)

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
        """Holds every instrument of `serve.metrics` and those of the process."""
        self._lifecycle.refresh()
        return Response(generate_latest(self._metrics.registry), media_type=CONTENT_TYPE_LATEST)

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
        deadline_seconds = time.monotonic() + self._timeout_seconds(request)
        _check_content_type(request)
        try:
            async with asyncio.timeout_at(deadline_seconds):
                return parse_body(await self._read_body(request), kind), deadline_seconds
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before the request was complete") from None

    async def _read_body(self, request: Request) -> bytes:
        too_large = RequestTooLargeError(f"body: expected at most {self._max_body_bytes} bytes")
        if int(request.headers.get("content-length", "0")) > self._max_body_bytes:
            raise too_large
        body = bytearray()
        try:
            async for chunk in request.stream():
                body += chunk
                if len(body) > self._max_body_bytes:
                    raise too_large
        except ClientDisconnect:
            raise CancelledError("the client went away") from None
        return bytes(body)

    def _timeout_seconds(self, request: Request) -> float:
        value = request.headers.get(TIMEOUT_HEADER)
        if value is None:
            return self._default_timeout_seconds
        # `isdecimal` alone would let in digits of other scripts, and `int` alone white space and underscores.
        if not (value.isascii() and value.isdecimal() and len(value) <= len(str(MAX_TIMEOUT_MS))):
            raise InvalidRequestError(TIMEOUT_HEADER, f"not a number, expected 1 to {MAX_TIMEOUT_MS}")
        if not 1 <= int(value) <= MAX_TIMEOUT_MS:
            raise InvalidRequestError(TIMEOUT_HEADER, f"{int(value)}, expected 1 to {MAX_TIMEOUT_MS}")
        return int(value) / 1000


class RequestRecorder:
    """ASGI middleware: records every request that is not a probe, and answers errors with problem documents."""

    def __init__(self, app: ASGIApp, *, metrics: ServiceMetrics, lifecycle: Lifecycle) -> None:
        self._app = app
        self._metrics = metrics
        self._lifecycle = lifecycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request."""
        if scope["type"] != "http" or (scope["method"] == "GET" and scope["path"] in PROBE_PATHS):
            await self._app(scope, receive, send)
            return
        request_id = choose_request_id(Request(scope).headers.get(REQUEST_ID_HEADER))

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"].append((REQUEST_ID_HEADER.encode(), request_id.encode()))
                if self._lifecycle.leaving:
                    # So that no client sends its next request down a connection that is about to be closed.
                    message["headers"].append((b"connection", b"close"))
            await send(message)

        try:
            with record_request(self._metrics, "rest", METHODS.get(scope["path"], "other"), request_id) as record:
                scope.setdefault("state", {})["record"] = record
                await self._app(scope, receive, send_with_headers)
        except ServiceError as error:
            await service_problem(error, request_id)(scope, receive, send_with_headers)


async def _answer_http_exception(request: Request, error: HTTPException) -> Response:
    record = _record(request)
    record.outcome = InvalidRequestError.reason
    return http_problem(error, record.request_id)


def _record(request: Request) -> RequestRecord:
    record: RequestRecord = request.state.record
    return record


def _check_content_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "content-type: expected application/json")


async def _answer(
    request: Request, work: Coroutine[Any, Any, AnyResponse], adapter: TypeAdapter[AnyResponse]
) -> Response:
    response = await unless_disconnected(request, work)
    return Response(adapter.dump_json(response, exclude_none=True), media_type="application/json")
