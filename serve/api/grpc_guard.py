"""Lets gRPC calls in, whatever service they are for, before anything is done for them; probes always.

An interceptor, so that no service can be forgotten. Who has no key gets UNAUTHENTICATED and is counted as any request.
Built by `serve.api.grpc_api`.

What answers a gRPC call: the handler of its method, or one that refuses it before its message is read.

A refusal has to cost little, or those who are refused keep the others waiting: it is counted, but has no line of its
own in the log. Streams of requests pass: they are held back by being read slowly. Built by `serve.api.grpc_api`.
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


class SheddingHandlers(grpc.GenericRpcHandler):
    """The methods of one service, as long as the turnstile is open."""

    def __init__(
        self,
        service: str,
        handlers: Mapping[str, Any],
        methods: Mapping[str, Method],
        load_shedder: LoadShedder,
        metrics: ServiceMetrics,
    ) -> None:
        """Keeps what it needs.

        Args:
            service: its full name.
            handlers: of each method, by its name.
            methods: the names in the metrics of those methods that the turnstile guards, by their paths.
            load_shedder: says whether a call may come in.
            metrics: counts those that may not.
        """
        self._handlers = {f"/{service}/{name}": handler for name, handler in handlers.items()}
        self._methods = methods
        self._load_shedder = load_shedder
        self._metrics = metrics
        self._refusal_metadata = error_trailers(QueueFullError(REFUSAL))  # the same for all, and slow to make

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Returns what answers a call; None: the service has no such method."""
        path = str(handler_call_details.method)
        handler, method = self._handlers.get(path), self._methods.get(path)
        if handler is None or method is None or handler.request_streaming or self._load_shedder.open:
            return handler
        error = self._load_shedder.refuse()

        async def refuse(_: object, context: Context) -> None:
            self._metrics.start_request()
            self._metrics.finish_request(NO_MODEL, "grpc", method, error.reason, 0.0)
            request_id = choose_request_id(call_headers(context).get(REQUEST_ID_KEY))
            await abort(context, error, ((REQUEST_ID_KEY, request_id), *self._refusal_metadata))

        return grpc.stream_stream_rpc_method_handler(refuse)  # which needs no message to begin


KEY_METADATA = "authorization"


class RequestGuard(grpc.aio.ServerInterceptor):
    """Asks the door about every call."""

    def __init__(self, authenticator: Authenticator, metrics: ServiceMetrics, methods: Mapping[str, Method]) -> None:
        """Keeps what it needs.

        Args:
            authenticator: decides.
            metrics: counts who was not let in.
            methods: the names of methods in the metrics, by their paths; all others are `other`.
        """
        self._authenticator = authenticator
        self._metrics = metrics
        self._methods = methods

    async def intercept_service(
        self,
        continuation: "Callable[[grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]]",
        handler_call_details: grpc.HandlerCallDetails,
    ) -> "grpc.RpcMethodHandler[Any, Any]":
        """Returns the handler of a call, or one that refuses it."""
        handler: Any = await continuation(handler_call_details)
        if handler is not None:
            metadata = dict(handler_call_details.invocation_metadata or ())
            handler = self.guard(handler, str(handler_call_details.method), str(metadata.get(KEY_METADATA, "")))
        return handler  # type: ignore[no-any-return]

    def guard(self, handler: Any, path: str, authorization: str) -> Any:
        """Returns the handler of a call if its key opens, and one that refuses it otherwise.

        Args:
            handler: of the method.
            path: of the method, as in /SERVICE/METHOD.
            authorization: what the metadata of the call hold under `authorization`.
        """
        if path in PROBES or path.startswith(f"/{HEALTH_SERVICE}/"):
            return handler
        try:
            self._authenticator.check_key(authorization)
        except UnauthorizedError as error:
            return self._refuse(handler, self._methods.get(path, "other"), error)
        return handler

    def _refuse(self, handler: Any, method: Method, error: UnauthorizedError) -> "grpc.RpcMethodHandler[Any, Any]":
        async def refuse(_: object, context: Context) -> None:
            async with recorded_call(self._metrics, method, context):
                raise error

        # Of the same kind, or gRPC would wait for messages that do not come.
        kind = "_".join(
            "stream" if streaming else "unary" for streaming in (handler.request_streaming, handler.response_streaming)
        )
        return handler._replace(**{kind: refuse})  # type: ignore[no-any-return]
