"""A replica under Ray Serve: the service of `dragoman serve` without ports.

Ray Serve awaits the ASGI application, which is complete when the models are ready, and calls the methods that have the
names of the gRPC methods. `ProxyCall` adapts a call of Ray Serve's proxy to the handlers of `dragoman.serve.grpc.api`:
the proxy passes metadata, takes status, details and trailers, and cancels the call if the client does. It passes no
deadline.
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

from dragoman.serve.app import configure_logs_and_traces, open_service
from dragoman.serve.grpc.guard import KEY_METADATA
from dragoman.serve.http.problem import REQUEST_ID_HEADER
from dragoman.serve.ray_serve.settings import ROWS_RUNNING, SEQUENCES_WAITING, SLOTS, RaySettings
from dragoman.serve.service import Service


class ReplicaApp:
    """The ASGI application of the REST interface, with the lifespan of the replica and without response ids."""

    def __init__(self, app: ASGIApp, close: Callable[[], Awaitable[None]]) -> None:
        """Wraps `app`; Ray Serve awaits `close` after the last request, and then ends the process."""
        self._app = app
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handles one request or the lifespan."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await self._app(scope, receive, _without_request_id(send))

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()  # lifespan.startup
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
        await self._close()
        await send({"type": "lifespan.shutdown.complete"})


def _without_request_id(send: Send) -> Send:
    """Returns `send` without the id in the response headers, because the proxy adds the same one."""
    header = REQUEST_ID_HEADER.encode()

    async def send_the_rest(message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            headers = [(name, value) for name, value in message["headers"] if name.lower() != header]
            message = {**message, "headers": headers}
        await send(message)

    return send_the_rest


Metadata = Iterable[tuple[str, str | bytes]]


class ProxyContext(Protocol):
    """The used part of `ray.serve.grpc_util.RayServegRPCContext`."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]: ...  # noqa: D102 - as in gRPC
    def set_code(self, code: StatusCode) -> None: ...  # noqa: D102
    def set_details(self, details: str) -> None: ...  # noqa: D102
    def set_trailing_metadata(self, trailing_metadata: list[tuple[str, str | bytes]]) -> None: ...  # noqa: D102


class CallEndedError(Exception):
    """The call ended with a status other than OK, which the proxy has."""


class ProxyCall:
    """The part of `grpc.aio.ServicerContext` that the handlers use."""

    def __init__(self, context: ProxyContext) -> None:
        self._context = context
        self._written: asyncio.Queue[Message | None] = asyncio.Queue()

    def header(self, key: str) -> str:
        """Returns a value of the metadata; empty if missing."""
        return str(dict(self.invocation_metadata()).get(key, ""))

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """Returns the metadata of the call."""
        return self._context.invocation_metadata()

    def time_remaining(self) -> None:
        """Returns None, as without a deadline: the proxy does not pass it."""

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Sets the trailers of the response."""
        self._context.set_trailing_metadata(list(metadata))

    async def abort(self, code: StatusCode, details: str, metadata: Metadata) -> NoReturn:
        """Ends the call; raises CallEndedError always."""
        self._context.set_code(code)
        self._context.set_details(details)
        self.set_trailing_metadata(metadata)
        raise CallEndedError(details)

    async def write(self, message: Message) -> None:
        """Sends a message of a stream."""
        self._written.put_nowait(message)

    async def stream(self, handling: Coroutine[Any, Any, None]) -> AsyncGenerator[Message]:
        """Yields the messages that a handler writes; raises CallEndedError if it ends the call with an error."""
        task = asyncio.create_task(handling)
        task.add_done_callback(lambda _: self._written.put_nowait(None))
        try:
            while (message := await self._written.get()) is not None:
                yield message
            await task
        finally:
            task.cancel()


def _answering(method: str) -> Callable[["Replica", bytes, ProxyContext], Coroutine[Any, Any, Message]]:
    """Returns the function of a method without streams."""

    async def answer(self: "Replica", data: bytes, grpc_context: ProxyContext) -> Message:
        call, handler = self.begin(method, grpc_context)
        try:
            message: Message = await handler.unary_unary(handler.request_deserializer(data), call)
        except CallEndedError:
            # gRPC sends no message with a status other than OK. If this error propagated, its details would be lost.
            return Empty()
        return message

    return answer


class Replica:
    """The service with the methods that Ray Serve calls."""

    def __init__(self, settings: RaySettings) -> None:
        self._settings = settings
        self._opened = AsyncExitStack()

    async def __serve_build_asgi_app__(self) -> ReplicaApp:
        """Returns the REST application when the models are ready; raises an exception if they cannot become ready."""
        try:
            configure_logs_and_traces(self._settings)
            self._service: Service = await self._opened.enter_async_context(open_service(self._settings))
        except SystemExit as error:
            # Ray treats SystemExit as an intended exit and hides the message.
            raise RuntimeError(str(error)) from error
        return ReplicaApp(self._service.http_app, self._opened.aclose)

    async def check_health(self) -> None:
        """Raises RuntimeError if a model hangs or is not ready; Ray replaces the replica after three failures."""
        if not self._service.lifecycle.live:
            raise RuntimeError("a model hangs")
        if reason := self._service.lifecycle.unready_reason():
            raise RuntimeError(str(reason))

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Returns the load for the autoscaler; see `dragoman.serve.ray_serve.settings`."""
        pipelines = self._service.models.pipelines
        return {
            ROWS_RUNNING: sum(pipeline.scheduler.running_rows for pipeline in pipelines),
            SEQUENCES_WAITING: sum(pipeline.scheduler.waiting for pipeline in pipelines),
            SLOTS: sum(pipeline.settings.total_slots for pipeline in pipelines),
        }

    # Ray Serve's proxy calls them by their names.
    Translate = _answering("Translate")
    Score = _answering("Score")
    Detect = _answering("Detect")
    ListModels = _answering("ListModels")
    GetModel = _answering("GetModel")
    Correct = _answering("Correct")

    async def TranslateStream(  # noqa: N802
        self, data: bytes, grpc_context: ProxyContext
    ) -> AsyncGenerator[Message]:
        """Yields the growth of translations."""
        call, handler = self.begin("TranslateStream", grpc_context)
        handling = handler.unary_stream(handler.request_deserializer(data), call)
        async with aclosing(call.stream(handling)) as messages:
            async for message in messages:
                yield message

    def begin(self, method: str, context: ProxyContext) -> tuple[ProxyCall, Any]:
        """Returns a call of a method and its handler."""
        call = ProxyCall(context)
        return call, self._service.grpc_handler(method, call.header(KEY_METADATA))
