"""The gRPC server: translation service, health checks, reflection, and further services."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from operator import methodcaller
from typing import Any, NamedTuple, TypeVar

import grpc
from google.protobuf.message import Message
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha import reflection

from dragoman.protos.translation_pb2 import (
    DESCRIPTOR,
    CorrectRequest,
    CorrectResponse,
    DetectRequest,
    GetModelRequest,
    ListModelsRequest,
    ScoreRequest,
    TranslateRequest,
)
from dragoman.serve.edge.auth import Security
from dragoman.serve.edge.load_shedding import GRPC_ITERATIONS, GRPC_SECONDS, Arrivals, LoadShedder
from dragoman.serve.errors import ForbiddenError, InvalidRequestError, ServiceError
from dragoman.serve.grpc import messages
from dragoman.serve.grpc.answers import write_score_message, write_stream_message, write_translation_message
from dragoman.serve.grpc.call import Context, RecordedCall, answer, send
from dragoman.serve.grpc.connections import Connections
from dragoman.serve.grpc.guard import RequestGuard
from dragoman.serve.grpc.health import Health
from dragoman.serve.grpc.many import ManyStream
from dragoman.serve.grpc.options import ChannelOptions, max_idle_connections
from dragoman.serve.grpc.reflection import Reflection
from dragoman.serve.grpc.server import GrpcServer
from dragoman.serve.grpc.service import GrpcService
from dragoman.serve.grpc.waits import idle_streams
from dragoman.serve.host.threads import MEMORIES
from dragoman.serve.http.server import ListenError
from dragoman.serve.memory.corrections import Correction, CorrectionStore
from dragoman.serve.memory.entry import Client, Entry, Pair
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.observability.request_metrics import Method
from dragoman.serve.registry.dispatcher import Dispatcher
from dragoman.serve.registry.registry import ModelRegistry

SERVICE = DESCRIPTOR.services_by_name["TranslationService"].full_name
METHODS: dict[str, Method] = {
    f"/{SERVICE}/Translate": "translate",
    f"/{SERVICE}/TranslateStream": "translate_stream",
    f"/{SERVICE}/TranslateMany": "translate_many",
    f"/{SERVICE}/Score": "score",
}
# After this time without a read, a stream no longer counts among the requests in flight.
UNREAD_SECONDS = 0.05
_serialize = methodcaller("SerializeToString")

AnyRequest = TypeVar("AnyRequest", bound=Message)


class GrpcLimits(NamedTuple):
    """Limits of the gRPC server.

    Attributes:
        values: of a message.
        stream_texts: a stream of `TranslateMany` is read only while fewer of its texts are unanswered.
        stream_seconds: in which such a stream is read.
    """

    options: ChannelOptions
    message_bytes: int
    values: int
    stream_texts: int
    stream_seconds: float


class GrpcApi:
    """A gRPC server with the translation service, further services, `grpc.health.v1` and reflection."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        models: ModelRegistry,
        metrics: ServiceMetrics,
        further: Collection[GrpcService],
        corrections: CorrectionStore | None,
        *,
        security: Security,
        load_shedder: LoadShedder,
        limits: GrpcLimits,
    ) -> None:
        """Builds the server without listening. Requires a running event loop. `corrections`: None: it takes none."""
        self._limits = limits
        self._dispatcher = dispatcher
        self._models = models
        self._corrections = corrections
        self._metrics = metrics
        self._load_shedder = load_shedder
        self._draining: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle_streams = idle_streams()
        self._health = Health()
        self._tls = security.tls
        self._connections = Connections(
            limits.message_bytes, max_idle_connections(), metrics.grpc_connections_ignored.inc
        )
        self._watching: asyncio.Task[None] | None = None
        self._arrivals = Arrivals(GRPC_ITERATIONS, lambda: load_shedder.busy, GRPC_SECONDS)
        self._guard = RequestGuard(
            security.authenticator,
            load_shedder,
            metrics,
            METHODS | {path: label for item in further for path, label in item.methods.items()},
            probes=frozenset().union(*(item.probes for item in further)),
            connections=self._connections,
            arrivals=self._arrivals,
        )
        services = {
            SERVICE: {
                "Translate": self._handler("translate", TranslateRequest, self._answer_texts),
                "TranslateStream": self._stream_handler(),
                "TranslateMany": self._many_handler(),
                "Score": self._handler("score", ScoreRequest, self._score),
                "Detect": self._handler("other", DetectRequest, self._detect),
                "ListModels": self._handler("other", ListModelsRequest, self._list_models),
                "GetModel": self._handler("other", GetModelRequest, self._get_model),
                "Correct": self._handler("other", CorrectRequest, self._correct),
            },
            **{item.name: item.handlers(self._handler) for item in further},
            HEALTH_SERVICE: self._health.handlers(),
        }
        services[reflection.SERVICE_NAME] = Reflection((*services, reflection.SERVICE_NAME)).handlers()
        guarded = {
            f"/{service}/{method}": self._guard.protect(handler, f"/{service}/{method}")
            for service, handlers in services.items()
            for method, handler in handlers.items()
        }
        self._server = GrpcServer(guarded, limits.options)

    async def listen(self, host: str, port: int) -> int:
        """Listens in the state NOT_SERVING and returns the port; port 0 selects a free one.

        Raises ListenError if the port cannot be bound.
        """
        await self.set_serving(serving=False, models={})
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        bound_port = self._server.add_port(address, None if self._tls is None else self._tls.grpc_credentials())
        if not bound_port:
            raise ListenError(f"{address}: gRPC cannot listen")
        self._server.start()
        self._watching = asyncio.create_task(self._connections.watch(bound_port))
        return bound_port

    @property
    def listening(self) -> bool:
        """Whether the server accepts connections and calls."""
        return self._server.accepts and self._connections.listening

    async def set_serving(self, serving: bool, models: Mapping[str, bool]) -> None:
        """Publishes the health of the service, and of each model as SERVICE/NAME."""
        self._health.publish(
            {"": serving, SERVICE: serving, **{f"{SERVICE}/{name}": model for name, model in models.items()}}
        )

    def drain(self) -> None:
        """Stops reading streams of requests; requests that were read still get responses."""
        if not self._draining.done():
            self._draining.set_result(None)

    async def leave(self, grace_seconds: float) -> None:
        """Lets clients open other connections, and cancels calls that are still open after `grace_seconds`."""
        await self._server.shutdown(grace_seconds)

    async def stop(self, grace_seconds: float) -> None:
        """Ends the present calls, at most after `grace_seconds`, then the connections.

        Calls that arrive meanwhile end with their connection, as UNAVAILABLE. gRPC would end them as CANCELLED, which
        clients do not retry.
        """
        self._connections.begin_none()
        await self._server.finish_calls(grace_seconds)
        await self._connections.close()
        await self._server.shutdown(None)
        if self._watching is not None:
            self._watching.cancel()

    def _handler(
        self,
        method: Method,
        kind: type[AnyRequest],
        serve: Callable[[AnyRequest, float | None, RequestRecord], Awaitable[Message]],
    ) -> Any:
        """Returns the handler of a unary method.

        `serve` takes a request, its deadline on the monotonic clock and its record.
        """

        async def handle(message: AnyRequest | InvalidRequestError, context: Context) -> Message:
            async with RecordedCall(self._metrics, method, context) as record:
                with self._load_shedder.enter(record, method):
                    if method != "other":
                        await self._arrivals.come_first()
                    return await answer(message, serve, context, record)

        return grpc.unary_unary_rpc_method_handler(
            handle,
            request_deserializer=messages.RequestParser(kind, self._limits.values).parse,
            response_serializer=_serialize,
        )

    def _stream_handler(self) -> Any:
        async def handle(message: TranslateRequest | InvalidRequestError, context: Context) -> None:
            async def serve(valid: TranslateRequest, deadline_seconds: float | None, record: RequestRecord) -> None:
                async with aclosing(
                    self._dispatcher.stream(messages.read_translate_request(valid, deadline_seconds), record)
                ) as events:
                    async for event in events:
                        response = await write_stream_message(event)
                        unread = asyncio.get_running_loop().call_later(UNREAD_SECONDS, in_flight.leave)
                        try:
                            await send(context, response)
                        finally:
                            unread.cancel()

            async with RecordedCall(self._metrics, "translate_stream", context) as record:
                with self._load_shedder.enter(record, "translate_stream") as in_flight:
                    await self._arrivals.come_first()
                    await answer(message, serve, context, record)

        return grpc.unary_stream_rpc_method_handler(
            handle,
            request_deserializer=messages.RequestParser(TranslateRequest, self._limits.values).parse,
            response_serializer=_serialize,
        )

    def _many_handler(self) -> Any:
        async def handle(_: object, context: Context) -> None:
            try:
                self._dispatcher.lifecycle.check_accepting()
            except ServiceError:
                # A rejected stream counts as one request.
                async with RecordedCall(self._metrics, "translate_many", context):
                    raise
            stream = ManyStream(
                context,
                self._dispatcher,
                self._arrivals,
                self._metrics,
                unanswered_texts=self._limits.stream_texts,
                max_seconds=self._limits.stream_seconds,
                idle=self._idle_streams,
                draining=self._draining,
            )
            await stream.run()

        return grpc.stream_stream_rpc_method_handler(
            handle, request_deserializer=messages.ItemParser(self._limits.values).parse, response_serializer=_serialize
        )

    async def _answer_texts(
        self, message: TranslateRequest, deadline_seconds: float | None, record: RequestRecord
    ) -> Message:
        request = messages.read_translate_request(message, deadline_seconds)
        return await write_translation_message(await self._dispatcher.translate(request, record))

    async def _score(self, message: ScoreRequest, deadline_seconds: float | None, record: RequestRecord) -> Message:
        request = messages.read_score_request(message, deadline_seconds)
        return await write_score_message(await self._dispatcher.score(request, record))

    async def _detect(self, message: DetectRequest, deadline_seconds: float | None, _: RequestRecord) -> Message:
        return messages.detect_response(await self._dispatcher.detect(message.text, deadline_seconds))

    async def _list_models(self, *_: object) -> Message:
        return messages.model_list(self._models.describe())

    async def _get_model(self, message: GetModelRequest, *_: object) -> Message:
        return messages.model_message(self._models.get(message.name).describe())

    async def _correct(self, message: CorrectRequest, _: float | None, record: RequestRecord) -> Message:
        if self._corrections is None:
            raise ForbiddenError("corrections: expected a server with --corrections")
        pair = Pair(message.source_language, message.target_language)
        entry = Entry(message.source, message.target, message.context)
        correction = Correction(pair, entry, message.translation, message.memory)
        client = Client(record.account_id, record.caller, record.approves)
        return CorrectResponse(id=await MEMORIES.run(self._corrections.add, client, correction))
