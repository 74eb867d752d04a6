"""Records and guards every request, and converts its errors to the format of its interface."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dragoman.serve.edge.auth import Authenticator
from dragoman.serve.edge.interface import Interface
from dragoman.serve.edge.load_shedding import IN_FLIGHT, LoadShedder
from dragoman.serve.edge.reader import RECORD, headers_of, record_of
from dragoman.serve.errors import InvalidRequestError, ServiceError, UnauthorizedError
from dragoman.serve.host.client_address import network_of
from dragoman.serve.http.connection import CERTIFIED
from dragoman.serve.http.exchange import EXCHANGE
from dragoman.serve.http.problem import REQUEST_ID_HEADER
from dragoman.serve.keys.account import Account
from dragoman.serve.observability.logs import RecordedRequest, choose_request_id
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.observability.request_metrics import Method
from dragoman.serve.registry.lifecycle import Lifecycle
from dragoman.serve.rest.cross_site import CrossSiteGuard
from dragoman.serve.rest.keys import KEYS_PATH
from dragoman.serve.rest.models import RELOAD_PATH

# Key of the request state: the `Interface` of the request.
INTERFACE = "interface"
# Paths whose interface is remembered; clients may ask for any path.
KNOWN_PATHS = 256
_REQUEST_ID = REQUEST_ID_HEADER.encode()


@dataclass(frozen=True, slots=True)
class Guard:
    """What decides whether a request may enter, and records it.

    Attributes:
        lifecycle: while it is leaving, connections close after a response.
        admin_authenticator: of the paths of reloads and keys; None: there are none.
        cross_site: without API keys, it guards the paths that are not open to pages.
    """

    metrics: ServiceMetrics
    lifecycle: Lifecycle
    authenticator: Authenticator
    admin_authenticator: Authenticator | None
    load_shedder: LoadShedder
    cross_site: CrossSiteGuard


class RequestRecorder:
    """ASGI middleware: records and guards every request except probes, and converts errors to problem documents."""

    def __init__(self, app: ASGIApp, guard: Guard, open_paths: frozenset[str], interfaces: Sequence[Interface]) -> None:
        """Wraps an application.

        `open_paths` (probes) are neither recorded nor guarded. The first of `interfaces` that owns a path answers its
        errors; the last one owns all paths.
        """
        self._app = app
        self._guard = guard
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

        def send_with_headers(message: Message) -> Awaitable[None]:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] += own_headers
                if self._guard.lifecycle.leaving:
                    # Otherwise a client may send its next request over a connection that is about to close.
                    message["headers"].append((b"connection", b"close"))
            return send(message)

        try:
            client = scope["client"]
            network = "" if client is None else network_of(client[0])
            with RecordedRequest(self._guard.metrics, "rest", method, request_id, headers, network=network) as record:
                state[RECORD] = record
                # Starlette's routes match a path with a line feed at its end, which is no path of this module.
                if scope["path"].endswith("\n"):
                    raise InvalidRequestError("path", "expected no line feed at its end")
                self._guard.authenticator.check_certificate(shown=state.get(CERTIFIED, False))
                if not self._guard.authenticator.has_keys and not interface.is_open_to_pages(scope["path"]):
                    self._guard.cross_site.check(scope["method"], headers)
                if not interface.reads_keys:
                    record.account = self._check_key(scope["path"], headers)
                arrived = EXCHANGE in state and not state[EXCHANGE].more_body
                with self._guard.load_shedder.expect(record, method, arrived=arrived) as state[IN_FLIGHT]:
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
        admin = self._guard.admin_authenticator
        if admin is not None and (path == RELOAD_PATH or path.startswith((KEYS_PATH, f"{KEYS_PATH}/"))):
            admin.check_key(*keys)
            return None
        return self._guard.authenticator.check_key(*keys)


def _find_interface(interfaces: Sequence[Interface], path: str) -> tuple[Interface, Method]:
    """Returns the interface that owns a path, and the label of the path in the metrics."""
    interface = next(item for item in interfaces if item.owns(path))
    return interface, interface.find_method(path) or "other"


async def answer_http_exception(request: Request, error: HTTPException) -> Response:
    """Exception handler: responds to an HTTP error, such as an unknown path or method."""
    record = record_of(request)
    record.outcome = InvalidRequestError.reason
    interface: Interface = request.scope["state"][INTERFACE]
    return interface.write_http_error(error, record.request_id)
