"""One replica under Ray Serve: the service that `dragoman serve` runs, without ports of its own.

Ray Serve builds it, asks for the ASGI application when the models are proven, and calls the methods named as those of
the gRPC service, whose names are therefore not in this project's spelling. Knows nothing of Ray but these names; made a
deployment by `serve.ray_serve.application`.
"""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, aclosing
from typing import Any

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message

from serve.api.grpc_guard import KEY_METADATA
from serve.app import configure_logs_and_traces, open_service
from serve.ray_serve.proxy_call import CallEndedError, ProxyCall, ProxyContext
from serve.ray_serve.replica_app import ReplicaApp
from serve.ray_serve.replica_count import ROWS_RUNNING, SEQUENCES_WAITING, SLOTS
from serve.ray_serve.settings import RaySettings
from serve.service import Service


class Replica:
    """The service as Ray Serve knows it."""

    def __init__(self, settings: RaySettings) -> None:
        """Starts nothing.

        Args:
            settings: of the operator.
        """
        self._settings = settings
        self._opened = AsyncExitStack()

    async def __serve_build_asgi_app__(self) -> ReplicaApp:
        """Loads the models, translates their golden sentences, and returns the application of the REST interface.

        Raises:
            Exception: whatever keeps the service from becoming ready.
        """
        try:
            configure_logs_and_traces(self._settings)
            self._service: Service = await self._opened.enter_async_context(open_service(self._settings))
        except SystemExit as error:
            # Ray would take it for a wish to leave, and not tell why.
            raise RuntimeError(str(error)) from error
        return ReplicaApp(self._service.http_app, self._opened.aclose)

    async def check_health(self) -> None:
        """Tells Ray Serve whether the replica is well.

        Raises:
            RuntimeError: while a model hangs, or does not become ready again; after three times Ray starts another one.
        """
        if not self._service.lifecycle.live:
            raise RuntimeError("a model hangs")
        if reason := self._service.lifecycle.unready_reason():
            raise RuntimeError(str(reason))

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Returns what the number of replicas is decided by; see `serve.ray_serve.replica_count`."""
        pipelines = [each.pipeline for each in self._service.models]
        return {
            ROWS_RUNNING: sum(each.scheduler.running_rows for each in pipelines),
            SEQUENCES_WAITING: sum(each.scheduler.waiting for each in pipelines),
            SLOTS: sum(each.settings.total_slots for each in pipelines),
        }

    async def Translate(self, data: bytes, grpc_context: ProxyContext) -> Message:  # noqa: N802
        """Answers a call with translations."""
        return await self._answer("Translate", data, grpc_context)

    async def Score(self, data: bytes, grpc_context: ProxyContext) -> Message:  # noqa: N802
        """Answers a call with scores."""
        return await self._answer("Score", data, grpc_context)

    async def ListModels(self, data: bytes, grpc_context: ProxyContext) -> Message:  # noqa: N802
        """Answers a call with all models."""
        return await self._answer("ListModels", data, grpc_context)

    async def GetModel(self, data: bytes, grpc_context: ProxyContext) -> Message:  # noqa: N802
        """Answers a call with one model."""
        return await self._answer("GetModel", data, grpc_context)

    async def TranslateStream(  # noqa: N802
        self, data: bytes, grpc_context: ProxyContext
    ) -> AsyncGenerator[Message]:
        """Answers a call with what translations grow by."""
        call, handler = self._begin("TranslateStream", grpc_context)
        handling = handler.unary_stream(handler.request_deserializer(data), call)
        async with aclosing(call.stream(handling)) as messages:
            async for message in messages:
                yield message

    async def _answer(self, method: str, data: bytes, context: ProxyContext) -> Message:
        call, handler = self._begin(method, context)
        try:
            message: Message = await handler.unary_unary(handler.request_deserializer(data), call)
        except CallEndedError:
            # gRPC sends no message beside a status that is not OK. If it were raised, its details would get lost.
            return Empty()
        return message

    def _begin(self, method: str, context: ProxyContext) -> tuple[ProxyCall, Any]:
        call = ProxyCall(context)
        return call, self._service.grpc_handler(method, call.header(KEY_METADATA))
