"""Guards gRPC calls before their messages are read: load shedding and API keys.

One interceptor covers every service. Probes and health checks need no key. A shed call must be cheap, or refusals would
delay admitted calls: it is counted but not logged. Streams of requests are not shed; flow control slows them down.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE

from serve.api.auth import Authenticator
from serve.api.grpc_call import REQUEST_ID_KEY, Context, abort, call_headers, error_trailers, recorded_call
from serve.api.load_shedding import REFUSAL, LoadShedder
from serve.api.open_inference.grpc import PROBES
from serve.errors import QueueFullError, UnauthorizedError
from serve.observability.logs import choose_request_id
from serve.observability.metrics import NO_MODEL, Method, ServiceMetrics

KEY_METADATA = "authorization"


class RequestGuard(grpc.aio.ServerInterceptor):
    """Replaces the handler of a refused call with a handler that rejects it."""

    def __init__(
        self,
        authenticator: Authenticator,
        load_shedder: LoadShedder,
        metrics: ServiceMetrics,
        methods: Mapping[str, Method],
    ) -> None:
        """Creates the guard; `methods` maps the paths of shed methods to metrics labels, other paths are `other`."""
        self._authenticator = authenticator
        self._load_shedder = load_shedder
        self._metrics = metrics
        self._methods = methods
        # shared by all calls, because it is slow to build
        self._shed_metadata = error_trailers(QueueFullError(REFUSAL))

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Returns the handler of a call, or a handler that rejects the call."""
        handler: Any = await continuation(handler_call_details)
        if handler is not None:
            path = str(handler_call_details.method)
            handler = self._shed(handler, path)
            if self._authenticator.required:
                metadata = dict(handler_call_details.invocation_metadata or ())
                handler = self.check_key(handler, path, str(metadata.get(KEY_METADATA, "")))
        return handler  # type: ignore[no-any-return]

    def check_key(self, handler: Any, path: str, authorization: str) -> Any:
        """Returns the handler of /SERVICE/METHOD if the API key is valid, else a handler that rejects the call."""
        if path in PROBES or path.startswith(f"/{HEALTH_SERVICE}/"):
            return handler
        try:
            self._authenticator.check_key(authorization)
        except UnauthorizedError as error:
            return self._refuse(handler, self._methods.get(path, "other"), error)
        return handler

    def _shed(self, handler: Any, path: str) -> Any:
        """Returns the handler if there is capacity, or a handler that rejects the call without reading a message."""
        method = self._methods.get(path)
        if method is None or handler.request_streaming or self._load_shedder.open:
            return handler
        error = self._load_shedder.refuse()

        async def refuse(_: object, context: Context) -> None:
            self._metrics.start_request()
            self._metrics.finish_request(NO_MODEL, "grpc", method, error.reason, 0.0)
            request_id = choose_request_id(call_headers(context).get(REQUEST_ID_KEY))
            await abort(context, error, ((REQUEST_ID_KEY, request_id), *self._shed_metadata))

        return grpc.stream_stream_rpc_method_handler(refuse)

    def _refuse(self, handler: Any, method: Method, error: UnauthorizedError) -> Any:
        async def refuse(_: object, context: Context) -> None:
            async with recorded_call(self._metrics, method, context):
                raise error

        # Same streaming kind as the original: otherwise gRPC waits for messages that never arrive.
        kind = "_".join(
            "stream" if streaming else "unary" for streaming in (handler.request_streaming, handler.response_streaming)
        )
        return handler._replace(**{kind: refuse})
