"""What happens to every REST request on its way in and out: it is recorded, let in or not, and its error written.

Errors travel as exceptions to here, and become answers in the form of the interface that was asked. Used by
`serve.api.http_api`.
"""

from collections.abc import Mapping

from fastapi import Request, Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serve.api.door import Door
from serve.api.http_headers import REQUEST_ID_HEADER
from serve.api.http_models import RELOAD_PATH
from serve.api.http_problem import http_problem, service_problem
from serve.api.load_shedding import Turnstile
from serve.api.open_inference import http as open_inference_http
from serve.api.server import CERTIFIED
from serve.errors import InvalidRequestError, ServiceError
from serve.observability.logs import RequestRecord, choose_request_id, record_request
from serve.observability.request_metrics import Method
from serve.observability.service_metrics import ServiceMetrics
from serve.registry.lifecycle import Lifecycle


class RequestRecorder:
    """ASGI middleware: records and guards every request but probes, and answers errors with problem documents."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        metrics: ServiceMetrics,
        lifecycle: Lifecycle,
        door: Door,
        turnstile: Turnstile,
        open_paths: frozenset[str],
        methods: Mapping[str, Method],
    ) -> None:
        """Keeps what it needs.

        Args:
            app: answers.
            metrics: counts every request that is not a probe.
            lifecycle: tells when clients had better open new connections elsewhere.
            door: decides who may ask.
            turnstile: refuses what there is no time for.
            open_paths: of probes.
            methods: the names of methods in the metrics, by their paths.
        """
        self._app = app
        self._metrics = metrics
        self._lifecycle = lifecycle
        self._door = door
        self._turnstile = turnstile
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
                self._door.check_certificate(shown=state.get(CERTIFIED, False))
                if scope["path"] != RELOAD_PATH:  # which has a door of its own
                    self._door.check_key(headers.get("authorization", ""))
                with self._turnstile.enter(record, method):
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
