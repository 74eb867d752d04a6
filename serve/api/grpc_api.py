"""The gRPC interface: messages to requests, deadlines, cancellation and status codes; health and reflection.

It decides nothing about translation: it hands requests to the dispatcher and turns errors into statuses. Built by
`serve.service`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from protos.translation_pb2 import DESCRIPTOR, GetModelRequest, ListModelsRequest, ScoreRequest, TranslateRequest
from serve.api.auth import Authenticator, Tls
from serve.api.grpc_call import Context, answer, call_headers, recorded_call, send
from serve.api.grpc_guard import RequestGuard, SheddingHandlers
from serve.api.grpc_many import ManyStream
from serve.api.grpc_messages import (
    ItemParser,
    RequestParser,
    model_list,
    model_message,
    read_options,
    score_response,
    stream_response,
    translate_response,
)
from serve.api.load_shedding import LoadShedder
from serve.api.open_inference.grpc import METHODS as INFERENCE_METHODS
from serve.api.open_inference.grpc import SERVICE as INFERENCE_SERVICE
from serve.api.open_inference.grpc import OpenInferenceGrpc
from serve.api.server import ChannelOptions
from serve.errors import InvalidRequestError, ServiceError
from serve.observability.logs import RequestRecord
from serve.observability.metrics import Method, ServiceMetrics
from serve.registry.dispatcher import Dispatcher
from serve.registry.registry import ModelDescription, ModelRegistry
from serve.translation.request import AskedDirection, AskedScore, AskedTranslation, FairnessKey
from serve.translation.response import ScoreResponse, TranslationResponse

SERVICE = DESCRIPTOR.services_by_name["TranslationService"].full_name
METHODS: dict[str, Method] = {
    f"/{SERVICE}/Translate": "translate",
    f"/{SERVICE}/TranslateStream": "translate_stream",
    f"/{SERVICE}/TranslateMany": "translate_many",
    f"/{SERVICE}/Score": "score",
    **INFERENCE_METHODS,
}
AnyRequest = TypeVar("AnyRequest", bound=Message)
AnyResponse = TypeVar("AnyResponse")


class GrpcApi:
    """A gRPC server with the translation service, `grpc.health.v1` and reflection."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        models: ModelRegistry,
        metrics: ServiceMetrics,
        open_inference: OpenInferenceGrpc,
        *,
        authenticator: Authenticator,
        load_shedder: LoadShedder,
        options: ChannelOptions,
        tls: Tls | None,
        stream_unanswered_texts: int,
        stream_seconds: float,
    ) -> None:
        """Builds the server, which listens nowhere yet. Must be called inside the event loop.

        Args:
            dispatcher: answers requests.
            models: what is listed.
            metrics: counts every request.
            open_inference: the methods of that protocol.
            authenticator: decides who may call.
            load_shedder: refuses what there is no time for.
            options: of the server, see `channel_options`.
            tls: what connections are encrypted with; None: nothing.
            stream_unanswered_texts: a stream of requests is read on only while fewer texts of it are unanswered.
            stream_seconds: how long it is read at most.
        """
        self._dispatcher = dispatcher
        self._models = models
        self._metrics = metrics
        self._load_shedder = load_shedder
        self._stream_unanswered_texts = stream_unanswered_texts
        self._stream_seconds = stream_seconds
        self._draining = asyncio.Event()
        self._healthy_names: set[str] = set()
        self._health = health_aio.HealthServicer()
        self._tls = tls
        self._access = RequestGuard(authenticator, metrics, METHODS)
        self._server = grpc.aio.server(interceptors=[self._access] if authenticator.locked else [], options=options)
        self._handlers = {
            "Translate": self._handler("translate", TranslateRequest, self._translate, translate_response),
            "TranslateStream": self._stream_handler(),
            "TranslateMany": self._many_handler(),
            "Score": self._handler("score", ScoreRequest, self._score, score_response),
            "ListModels": self._handler("other", ListModelsRequest, self._list_models, model_list),
            "GetModel": self._handler("other", GetModelRequest, self._get_model, model_message),
        }
        services = {SERVICE: self._handlers, INFERENCE_SERVICE: open_inference.handlers(self._handler)}
        self._server.add_generic_rpc_handlers(
            tuple(
                SheddingHandlers(name, handlers, METHODS, load_shedder, metrics) for name, handlers in services.items()
            )
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        described = (SERVICE, INFERENCE_SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(described, self._server)

    def handler(self, method: str, authorization: str) -> Any:
        """Returns what answers a call of a method of the service, or refuses it: for servers that are not this one.

        Args:
            method: its name, without the service's.
            authorization: what the metadata of the call hold under `authorization`.
        """
        return self._access.guard(self._handlers[method], f"/{SERVICE}/{method}", authorization)

    async def listen(self, host: str, port: int) -> int:
        """Answers on `host:port`, not serving yet; returns the port, which differs if the given one is 0.

        Raises:
            RuntimeError: if the port cannot be had.
        """
        await self.set_serving(serving=False, models={})
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if self._tls is None:
            bound_port = self._server.add_insecure_port(address)
        else:
            bound_port = self._server.add_secure_port(address, self._tls.grpc_credentials())
        await self._server.start()
        return bound_port

    async def set_serving(self, serving: bool, models: Mapping[str, bool]) -> None:
        """Tells health checks, and those who watch, what is ready: the service, and each model as SERVICE/NAME."""
        ready = {"": serving, SERVICE: serving, **{f"{SERVICE}/{name}": each for name, each in models.items()}}
        for name, each in ready.items():
            status = health_pb2.HealthCheckResponse.SERVING if each else health_pb2.HealthCheckResponse.NOT_SERVING
            await self._health.set(name, status)
        for name in self._healthy_names - ready.keys():
            await self._health.set(name, health_pb2.HealthCheckResponse.SERVICE_UNKNOWN)
        self._healthy_names = set(ready)

    def drain(self) -> None:
        """Reads no further request of any stream; those that were read are answered."""
        self._draining.set()

    async def stop(self, grace_seconds: float) -> None:
        """Takes no new call, and cuts off those that are still open after `grace_seconds`."""
        await self._server.stop(grace_seconds)

    def _handler(
        self,
        method: Method,
        kind: type[AnyRequest],
        serve: Callable[[AnyRequest, float | None, RequestRecord], Awaitable[AnyResponse]],
        write: Callable[[AnyResponse], Message],
    ) -> Any:
        """Returns what gRPC calls for one method.

        Args:
            method: its name in the metrics.
            kind: the class of its request.
            serve: what it does, given the request, its deadline on the monotonic clock and its record.
            write: makes a message of the result.
        """

        async def handle(message: AnyRequest | InvalidRequestError, context: Context) -> Message:
            async with recorded_call(self._metrics, method, context) as record:
                with self._load_shedder.enter(record, method):
                    return write(await answer(message, serve, context, record))

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=RequestParser(kind).parse, response_serializer=_serialize
        )

    def _stream_handler(self) -> Any:
        """Returns what gRPC calls for streams of translations."""

        async def handle(message: TranslateRequest | InvalidRequestError, context: Context) -> None:
            async def serve(valid: TranslateRequest, deadline_seconds: float | None, record: RequestRecord) -> None:
                async with aclosing(self._dispatcher.stream(_asked(valid, deadline_seconds), record)) as events:
                    async for event in events:
                        await send(context, stream_response(event))

            async with recorded_call(self._metrics, "translate_stream", context) as record:
                with self._load_shedder.enter(record, "translate_stream"):
                    await answer(message, serve, context, record)

        return grpc.unary_stream_rpc_method_handler(
            handle, request_deserializer=RequestParser(TranslateRequest).parse, response_serializer=_serialize
        )

    def _many_handler(self) -> Any:
        """Returns what gRPC calls for streams of requests."""

        async def handle(_: object, context: Context) -> None:
            try:
                self._dispatcher.check_admission()
            except ServiceError:
                # A stream that never begins counts as the one request that it would have begun with.
                async with recorded_call(self._metrics, "translate_many", context):
                    raise
            stream = ManyStream(
                context,
                call_headers(context),
                self._translate,
                self._metrics,
                unanswered_texts=self._stream_unanswered_texts,
                longest_seconds=self._stream_seconds,
                draining=self._draining,
            )
            await stream.run()

        return grpc.stream_stream_rpc_method_handler(
            handle, request_deserializer=ItemParser().parse, response_serializer=_serialize
        )

    async def _translate(
        self,
        message: TranslateRequest,
        deadline_seconds: float | None,
        record: RequestRecord,
        fairness_key: FairnessKey | None = None,
    ) -> TranslationResponse:
        return await self._dispatcher.translate(_asked(message, deadline_seconds, fairness_key), record)

    async def _score(
        self, message: ScoreRequest, deadline_seconds: float | None, record: RequestRecord
    ) -> ScoreResponse:
        asked = AskedScore(
            pairs=[(pair.text, pair.translation) for pair in message.pairs],
            direction=AskedDirection(
                model=message.model, source_language=message.source_language, target_language=message.target_language
            ),
            deadline_seconds=deadline_seconds,
        )
        return await self._dispatcher.score(asked, record)

    async def _list_models(self, *_: object) -> tuple[ModelDescription, ...]:
        return self._models.describe()

    async def _get_model(self, message: GetModelRequest, *_: object) -> ModelDescription:
        return self._models.get(message.name).describe()


def _asked(
    message: TranslateRequest, deadline_seconds: float | None, fairness_key: FairnessKey | None = None
) -> AskedTranslation:
    return AskedTranslation(
        texts=message.text,
        direction=AskedDirection(
            model=message.model,
            source_language=message.source_language,
            target_language=message.target_language,
            allow_pivot=message.allow_pivot,
        ),
        options=read_options(message.options),
        target_prefix=message.target_prefix,
        deadline_seconds=deadline_seconds,
        split_sentences=message.split_sentences if message.HasField("split_sentences") else True,
        fairness_key=fairness_key,
    )


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()
