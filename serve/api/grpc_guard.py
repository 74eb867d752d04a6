"""Lets gRPC calls in, whatever service they are for, before anything is done for them; probes always.

An interceptor, so that no service can be forgotten. Who has no key gets UNAUTHENTICATED and is counted as any request.
Built by `serve.api.grpc_api`.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc.aio
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE

from serve.api.door import Door
from serve.api.grpc_call import Context, recorded_call
from serve.api.open_inference.grpc import PROBES
from serve.errors import UnauthorisedError
from serve.observability.request_metrics import Method
from serve.observability.service_metrics import ServiceMetrics

KEY_METADATA = "authorization"


class Access(grpc.aio.ServerInterceptor):
    """Asks the door about every call."""

    def __init__(self, door: Door, metrics: ServiceMetrics, methods: Mapping[str, Method]) -> None:
        """Keeps what it needs.

        Args:
            door: decides.
            metrics: counts who was not let in.
            methods: the names of methods in the metrics, by their paths; all others are `other`.
        """
        self._door = door
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

    def guard(self, handler: Any, path: str, authorisation: str) -> Any:
        """Returns the handler of a call if its key opens, and one that refuses it otherwise.

        Args:
            handler: of the method.
            path: of the method, as in /SERVICE/METHOD.
            authorisation: what the metadata of the call hold under `authorization`.
        """
        if path in PROBES or path.startswith(f"/{HEALTH_SERVICE}/"):
            return handler
        try:
            self._door.check_key(authorisation)
        except UnauthorisedError as error:
            return self._refuse(handler, self._methods.get(path, "other"), error)
        return handler

    def _refuse(self, handler: Any, method: Method, error: UnauthorisedError) -> "grpc.RpcMethodHandler[Any, Any]":
        async def refuse(_: object, context: Context) -> None:
            async with recorded_call(self._metrics, method, context):
                raise error

        # Of the same kind, or gRPC would wait for messages that do not come.
        kind = "_".join(
            "stream" if streaming else "unary" for streaming in (handler.request_streaming, handler.response_streaming)
        )
        return handler._replace(**{kind: refuse})  # type: ignore[no-any-return]
