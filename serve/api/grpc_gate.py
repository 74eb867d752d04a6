"""What answers a gRPC call: the handler of its method, or one that refuses it before its message is read.

A refusal has to cost little, or those who are refused keep the others waiting: it is counted, but has no line of its
own in the log. Streams of requests pass: they are held back by being read slowly. Built by `serve.api.grpc_api`.
"""

from collections.abc import Mapping
from typing import Any

import grpc

from serve.api.grpc_call import Context, abort, call_headers
from serve.api.grpc_status import REQUEST_ID_KEY, error_trailers
from serve.api.load_shedding import REFUSAL, Turnstile
from serve.errors import QueueFullError
from serve.observability.logs import choose_request_id
from serve.observability.request_metrics import Method
from serve.observability.service_metrics import NO_MODEL, ServiceMetrics


class Gate(grpc.GenericRpcHandler):
    """The methods of one service, as long as the turnstile is open."""

    def __init__(
        self,
        service: str,
        handlers: Mapping[str, Any],
        methods: Mapping[str, Method],
        turnstile: Turnstile,
        metrics: ServiceMetrics,
    ) -> None:
        """Keeps what it needs.

        Args:
            service: its full name.
            handlers: of each method, by its name.
            methods: the names in the metrics of those methods that the turnstile guards, by their paths.
            turnstile: says whether a call may come in.
            metrics: counts those that may not.
        """
        self._handlers = {f"/{service}/{name}": handler for name, handler in handlers.items()}
        self._methods = methods
        self._turnstile = turnstile
        self._metrics = metrics
        self._refusal_metadata = error_trailers(QueueFullError(REFUSAL))  # the same for all, and slow to make

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """Returns what answers a call; None: the service has no such method."""
        path = str(handler_call_details.method)
        handler, method = self._handlers.get(path), self._methods.get(path)
        if handler is None or method is None or handler.request_streaming or self._turnstile.open:
            return handler
        error = self._turnstile.refuse()

        async def refuse(_: object, context: Context) -> None:
            self._metrics.start_request()
            self._metrics.finish_request(NO_MODEL, "grpc", method, error.reason, 0.0)
            request_id = choose_request_id(call_headers(context).get(REQUEST_ID_KEY))
            await abort(context, error, ((REQUEST_ID_KEY, request_id), *self._refusal_metadata))

        return grpc.stream_stream_rpc_method_handler(refuse)  # which needs no message to begin
