"""The gRPC interface: messages to requests, deadlines, cancellation and status codes; health and reflection.

It decides nothing about translation: it hands requests to the dispatcher and turns errors into statuses. Built by
`serve.app`.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from protos.translation_pb2 import DESCRIPTOR, GetModelRequest, ListModelsRequest, ScoreRequest, TranslateRequest
from serve.answer import ScoreResponse, TranslationResponse
from serve.asked import AskedDirection, AskedScore, AskedTranslation
from serve.dispatcher import Dispatcher
from serve.errors import DeadlineExceededError, InvalidRequestError, ServiceError
from serve.grpc_messages import (
    model_list,
    model_message,
    read_options,
    score_response,
    stream_response,
    translate_response,
)
from serve.grpc_wire import RequestParser
from serve.logs import RequestRecord, choose_request_id, record_request
from serve.metrics import Method
from serve.model_description import ModelDescription
from serve.models import Models
from serve.service_metrics import ServiceMetrics

SERVICE = DESCRIPTOR.services_by_name["TranslationService"].full_name
REQUEST_ID_KEY = "x-request-id"
# What gRPC's own client obeys when it retries (gRFC A6).
RETRY_AFTER_KEY = "grpc-retry-pushback-ms"
MAX_PENDING_CALLS = 1_000_000
# Clients send their deadline rounded up by as much as this share, and hang up at the true one.
DEADLINE_ROUNDING = 0.02

Context = grpc.aio.ServicerContext[Any, Any]
AnyRequest = TypeVar("AnyRequest", bound=Message)
AnyResponse = TypeVar("AnyResponse")


class GrpcApi:
    """A gRPC server with the translation service, `grpc.health.v1` and reflection."""

    def __init__(self, dispatcher: Dispatcher, models: Models, metrics: ServiceMetrics, *, max_body_bytes: int) -> None:
        """Builds the server, which listens nowhere yet. Must be called inside the event loop.

        Args:
            dispatcher: answers requests.
            models: what is listed.
            metrics: counts every request.
            max_body_bytes: the largest message that is read; gRPC itself refuses larger ones.
        """
        self._dispatcher = dispatcher
        self._models = models
        self._metrics = metrics
        self._healthy_names: set[str] = set()
        self._health = health_aio.HealthServicer()
        options = (
            # A second server on the same port would silently take half of the connections.
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", max_body_bytes),
            # Beyond these, gRPC itself would end calls as CANCELLED, unseen; the scheduler refuses with a reason.
            ("grpc.server.max_pending_requests", MAX_PENDING_CALLS),
            ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_CALLS),
        )
        self._server = grpc.aio.server(options=options)
        handlers = {
            "Translate": self._handler("translate", TranslateRequest, self._translate, translate_response),
            "TranslateStream": self._stream_handler(),
            "Score": self._handler("score", ScoreRequest, self._score, score_response),
            "ListModels": self._handler("other", ListModelsRequest, self._list_models, model_list),
            "GetModel": self._handler("other", GetModelRequest, self._get_model, model_message),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((SERVICE, HEALTH_SERVICE, reflection.SERVICE_NAME), self._server)

    async def listen(self, host: str, port: int) -> int:
        """Answers on `host:port`, not serving yet; returns the port, which differs if the given one is 0.

        Raises:
            RuntimeError: if the port cannot be had.
        """
        await self.set_serving(serving=False, models={})
        bound_port = self._server.add_insecure_port(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
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
            async with self._recorded(method, context) as record:
                return write(await _answer(message, serve, context, record))

        return grpc.unary_unary_rpc_method_handler(
            handle, request_deserializer=RequestParser(kind).parse, response_serializer=_serialize
        )

    def _stream_handler(self) -> Any:
        """Returns what gRPC calls for streams of translations."""

        async def handle(message: TranslateRequest | InvalidRequestError, context: Context) -> None:
            async def serve(valid: TranslateRequest, deadline_seconds: float | None, record: RequestRecord) -> None:
                async with aclosing(self._dispatcher.stream(_asked(valid, deadline_seconds), record)) as events:
                    async for event in events:
                        await context.write(stream_response(event))

            async with self._recorded("translate_stream", context) as record:
                await _answer(message, serve, context, record)

        return grpc.unary_stream_rpc_method_handler(
            handle, request_deserializer=RequestParser(TranslateRequest).parse, response_serializer=_serialize
        )

    @asynccontextmanager
    async def _recorded(self, method: Method, context: Context) -> AsyncIterator[RequestRecord]:
        """Records what happens inside, and ends the call with the status of an error."""
        request_id = choose_request_id(_given_request_id(context))
        trailers = [(REQUEST_ID_KEY, request_id)]
        try:
            with record_request(self._metrics, "grpc", method, request_id) as record:
                yield record
        except ServiceError as error:
            if error.retry_after_seconds is not None:
                trailers.append((RETRY_AFTER_KEY, str(error.retry_after_seconds * 1000)))
            await context.abort(error.grpc_status, str(error), tuple(trailers))
        context.set_trailing_metadata(tuple(trailers))

    async def _translate(
        self, message: TranslateRequest, deadline_seconds: float | None, record: RequestRecord
    ) -> TranslationResponse:
        return await self._dispatcher.translate(_asked(message, deadline_seconds), record)

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


def _asked(message: TranslateRequest, deadline_seconds: float | None) -> AskedTranslation:
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
    )


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


async def _answer(
    message: AnyRequest | InvalidRequestError,
    serve: Callable[[AnyRequest, float | None, RequestRecord], Awaitable[AnyResponse]],
    context: Context,
    record: RequestRecord,
) -> AnyResponse:
    if isinstance(message, InvalidRequestError):
        raise message
    timeout_seconds = _time_remaining(context)
    try:
        deadline_seconds = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        return await serve(message, deadline_seconds, record)
    except asyncio.CancelledError:
        # gRPC cancels the call both when the client hangs up and when its deadline passes.
        remaining_seconds = _time_remaining(context)
        if timeout_seconds is not None and remaining_seconds is not None:
            passed = remaining_seconds <= DEADLINE_ROUNDING * timeout_seconds
            record.outcome = DeadlineExceededError.reason if passed else record.outcome
        raise


def _time_remaining(context: Context) -> float | None:
    """Returns the time to the client's deadline, in seconds; None if it set none."""
    return context.time_remaining()


def _given_request_id(context: Context) -> str | None:
    value = dict(context.invocation_metadata() or ()).get(REQUEST_ID_KEY)
    return value if isinstance(value, str) else None
