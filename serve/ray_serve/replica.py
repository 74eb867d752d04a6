"""One replica under Ray Serve: the service that `dragoman serve` runs, without ports of its own.

Ray Serve builds it, asks for the ASGI application when the models are proven, and calls the methods named as those of
the gRPC service, whose names are therefore not in this project's spelling. Knows nothing of Ray but these names; made a
deployment by `serve.ray_serve.application`.

The REST interface as Ray Serve needs it: it ends with the replica, and leaves the id of a request to the proxy.

Knows nothing of translation. Made by `serve.ray_serve.replica`.

A gRPC call that came by way of Ray Serve's proxy, as the handlers of `serve.api.grpc_api` know calls.

The proxy sends metadata along and takes status, details and trailers back. It does not tell when the client stops
waiting: it cancels the call then. Made by `serve.ray_serve.replica`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, NoReturn, Protocol

from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import Message
from grpc import StatusCode
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as AsgiMessage

from serve.api.grpc_guard import KEY_METADATA
from serve.api.http_problem import REQUEST_ID_HEADER
from serve.app import configure_logs_and_traces, open_service
from serve.ray_serve.settings import ROWS_RUNNING, SEQUENCES_WAITING, SLOTS, RaySettings
from serve.service import Service


class ReplicaApp:
    """An ASGI application around that of the REST interface."""

    def __init__(self, app: ASGIApp, close: Callable[[], Awaitable[None]]) -> None:
        """Keeps what it needs.

        Args:
            app: answers requests.
            close: ends the replica; Ray Serve waits for it when no request is left, and then ends the process.
        """
        self._app = app
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request, or the life of the replica."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, _without_request_id(send))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()  # that it starts
        await send({"type": "lifespan.startup.complete"})
        await receive()  # that it ends
        await self._close()
        await send({"type": "lifespan.shutdown.complete"})


def _without_request_id(send: Send) -> Send:
    """Returns what sends all but the id in the headers of an answer, since the proxy adds the same one."""
    header = REQUEST_ID_HEADER.encode()

    async def send_the_rest(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, value) for name, value in message["headers"] if name.lower() != header]
            message = {**message, "headers": headers}
        await send(message)

    return send_the_rest


Metadata = Iterable[tuple[str, str | bytes]]


class ProxyContext(Protocol):
    """What is used of `ray.serve.grpc_util.RayServegRPCContext`."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]: ...  # noqa: D102 - as gRPC's own
    def set_code(self, code: StatusCode) -> None: ...  # noqa: D102
    def set_details(self, details: str) -> None: ...  # noqa: D102
    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str | bytes]]) -> None: ...  # noqa: D102


class CallEndedError(Exception):
    """The call has ended with another status than OK, which the proxy has been told."""


class ProxyCall:
    """As much of `grpc.aio.ServicerContext` as the handlers use."""

    def __init__(self, context: ProxyContext) -> None:
        """Begins a call.

        Args:
            context: what the proxy sent along.
        """
        self._context = context
        self._written: asyncio.Queue[Message | None] = asyncio.Queue()

    def header(self, key: str) -> str:
        """Returns a value of the call's metadata; empty: there is none."""
        return str(dict(self.invocation_metadata()).get(key, ""))

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """Returns the metadata of the call."""
        return self._context.invocation_metadata()

    def time_remaining(self) -> None:
        """Returns None, as for a client without a deadline: the proxy does not tell it."""

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Tells what goes after the answer."""
        self._context.set_trailing_metadata(list(metadata))

    async def abort(self, code: StatusCode, details: str, metadata: Metadata) -> NoReturn:
        """Ends the call.

        Raises:
            CallEndedError: always.
        """
        self._context.set_code(code)
        self._context.set_details(details)
        self.set_trailing_metadata(metadata)
        raise CallEndedError(details)

    async def write(self, message: Message) -> None:
        """Sends a message of a stream."""
        self._written.put_nowait(message)

    async def stream(self, handling: Coroutine[Any, Any, None]) -> AsyncGenerator[Message]:
        """Yields what a handler writes, while it runs.

        Raises:
            CallEndedError: if it ended the call with another status than OK.
        """
        task = asyncio.create_task(handling)
        task.add_done_callback(lambda _: self._written.put_nowait(None))
        try:
            while (message := await self._written.get()) is not None:
                yield message
            await task
        finally:
            task.cancel()


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
        """Returns what the number of replicas is decided by; see `serve.ray_serve.settings`."""
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
