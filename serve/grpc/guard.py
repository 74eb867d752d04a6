"""Guards gRPC calls before their messages are read: API keys, load shedding, and bounds of the waits for clients.

One guard covers every service. Probes and health checks need no key. A refused call must be cheap, or refusals
would delay accepted calls: it is counted but not logged, except for a missing key. Streams of requests are not shed;
flow control slows them down.
"""

from collections.abc import Container, Mapping
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE

from dragoman.serve.edge.auth import Authenticator
from dragoman.serve.edge.load_shedding import REFUSAL, Arrivals, LoadShedder
from dragoman.serve.errors import InvalidRequestError, QueueFullError, ServiceError, UnauthorizedError
from dragoman.serve.grpc.call import ACCOUNT, REQUEST_ID_KEY, Context, RecordedCall, abort, call_headers, error_trailers
from dragoman.serve.grpc.connections import CONNECTION, Connection, Connections
from dragoman.serve.grpc.unread import UnreadResponses
from dragoman.serve.grpc.waits import LimitedWait, Waits
from dragoman.serve.observability.logs import caller_of, choose_request_id
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.observability.request_metrics import NO_MODEL, Method

KEY_METADATA = "authorization"
# A client sends the message of a unary call with its headers or right after them.
MESSAGE_SECONDS = 10.0
# Unary calls that wait for their message.
WAITING_CALLS = 1024


class RequestGuard:
    """Replaces each handler with one that refuses or bounds its calls."""

    def __init__(
        self,
        authenticator: Authenticator,
        load_shedder: LoadShedder,
        metrics: ServiceMetrics,
        methods: Mapping[str, Method],
        *,
        probes: Container[str],
        connections: Connections,
        arrivals: Arrivals,
    ) -> None:
        """Creates the guard.

        Args:
            methods: metrics labels of the paths of shed methods; other paths are `other`.
            probes: paths of methods that need no key, besides health checks.
            connections: count the calls and their messages.
            arrivals: counts the calls and their messages, so that new ones come first.
        """
        self._authenticator = authenticator
        self._load_shedder = load_shedder
        self._metrics = metrics
        self._methods = methods
        self._probes = probes
        self._connections = connections
        self._arrivals = arrivals
        self._messages = Waits("message of the call", WAITING_CALLS, MESSAGE_SECONDS)
        self._unread = UnreadResponses()
        # shared by all calls, because it is slow to build
        self._full_trailers = error_trailers(QueueFullError(REFUSAL))

    def protect(self, handler: Any, path: str) -> Any:
        """Returns a handler that checks the call, then reads the message of a unary call within the limits.

        To gRPC, every method reads a stream: it would wait for the message of a unary method without a limit.
        """
        serve, method = getattr(handler, _kind(handler)), self._methods.get(path, "other")
        is_open = path in self._probes or path.startswith(f"/{HEALTH_SERVICE}/")

        async def guarded(messages: object, context: Context) -> Any:
            self._arrivals.note()
            connection = self._connections.of_call(context.peer())
            # Each call has its own context.
            CONNECTION.set(connection)
            connection.begin_call()
            try:
                if self._authenticator.required and not is_open:
                    keys = (str(value) for key, value in context.invocation_metadata() if key == KEY_METADATA)
                    ACCOUNT.set(self._authenticator.check_key(*keys))
                self._unread.check(connection)
                request = messages if handler.request_streaming else await self._receive(context, method, connection)
                response = await serve(request, context)
            except ServiceError as error:
                await self._refuse(method, error, context)
            else:
                if not handler.response_streaming:
                    await self._unread.add(response, context, connection)
                return response
            finally:
                connection.end_call()

        def read(data: bytes) -> Any:
            self._arrivals.note()
            if (connection := CONNECTION.get()) is not None:
                connection.count_message(len(data))
            return handler.request_deserializer(data)

        make = grpc.stream_stream_rpc_method_handler
        if not handler.response_streaming:
            make = grpc.stream_unary_rpc_method_handler
        return make(guarded, read, handler.response_serializer)

    async def _receive(self, context: Context, method: Method, connection: Connection) -> Any:
        """Returns the message of a unary call; raises ServiceError if the call is shed or the message is late."""
        if method != "other":
            caller = caller_of(ACCOUNT.get(), connection.network)
            if not self._load_shedder.has_room(caller, context.time_remaining()):
                raise self._load_shedder.refuse()
        with LimitedWait(self._messages):
            message = await context.read()
        if message is grpc.aio.EOF:  # often, the client has canceled the call
            missing = InvalidRequestError("request", "expected one message, got none")
            await abort(context, missing, error_trailers(missing))
        return message

    async def _refuse(self, method: Method, error: ServiceError, context: Context) -> None:
        if isinstance(error, UnauthorizedError):
            async with RecordedCall(self._metrics, method, context):
                raise error
        self._metrics.start_request()
        self._metrics.finish_request(NO_MODEL, "grpc", method, error.reason, 0.0)
        request_id = choose_request_id(call_headers(context).get(REQUEST_ID_KEY))
        trailers = self._full_trailers if isinstance(error, QueueFullError) else error_trailers(error)
        await abort(context, error, ((REQUEST_ID_KEY, request_id), *trailers))


def _kind(handler: Any) -> str:
    """Returns the name of the handler's function, as in `unary_stream`."""
    directions = (handler.request_streaming, handler.response_streaming)
    return "_".join("stream" if streaming else "unary" for streaming in directions)
