"""A call of the gRPC server: the part of `grpc.aio.ServicerContext` that handlers use, without its cost.

Each method starts operations of gRPC's core, which `Events` ends.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from typing import Any, NoReturn

import grpc
import grpc.aio
import structlog
from grpc import StatusCode
from grpc._cython.cygrpc import (  # type: ignore[import-not-found]
    ReceiveCloseOnServerOperation,
    ReceiveMessageOperation,
    SendInitialMetadataOperation,
    SendMessageOperation,
    SendStatusFromServerOperation,
    WriteFlag,
)

from dragoman.serve.grpc.events import Events

# Later deadlines, in seconds of the epoch, are none.
NEVER_SECONDS = 1e11
_NO_FLAGS = 0

Metadata = Sequence[tuple[str, str | bytes]]
Event = Any

_log = structlog.get_logger("dragoman")


class ServerCall:
    """A call until its status is sent and its client is done. Belongs to the event loop's thread."""

    def __init__(self, event: Event, handler: Any, events: Events, end: Callable[["ServerCall"], object]) -> None:
        """Starts the handler in a task; `end` is called once, when the call is over."""
        self._call = event.call
        self._metadata = event.invocation_metadata
        self._deadline_seconds: float = event.call_details.deadline
        self._handler = handler
        self._events = events
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._trailing: Metadata = ()
        self._started = self._ended = self._answered = self._closed = False
        self._aborted: grpc.aio.AbortError | None = None
        self._callbacks: list[Callable[[ServerCall], object]] = []
        self._task = self._loop.create_task(self._serve())
        self._task.add_done_callback(self._finish)  # also if the task is canceled before it starts
        self._begin((ReceiveCloseOnServerOperation(_NO_FLAGS),), self._close)

    # What handlers use

    def invocation_metadata(self) -> Metadata:
        """Returns the metadata of the client."""
        metadata: Metadata = self._metadata
        return metadata

    def peer(self) -> str:
        """Returns the address of the client, as gRPC writes it."""
        return str(self._call.peer().decode())

    def time_remaining(self) -> float | None:
        """Returns the seconds until the deadline; None: there is none."""
        if self._deadline_seconds > NEVER_SECONDS:
            return None
        return max(self._deadline_seconds - time.time(), 0.0)

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Sets the metadata that follows the last message."""
        self._trailing = metadata

    def add_done_callback(self, callback: Callable[["ServerCall"], object]) -> None:
        """Calls a function when the handler has ended and its status is sent."""
        self._callbacks.append(callback)

    async def send_initial_metadata(self, metadata: Metadata) -> None:
        """Sends the metadata before the first message; raises as `write`."""
        self._check_open()
        self._started = True
        await self._run(SendInitialMetadataOperation(metadata, _NO_FLAGS))

    async def read(self) -> Any:
        """Returns the next message, or `grpc.aio.EOF` after the last one."""
        self._check_open()
        operation = ReceiveMessageOperation(_NO_FLAGS)
        try:
            await self._run(operation)
        except grpc.aio.InternalError:  # the client has gone away
            return grpc.aio.EOF
        return self._deserialized(operation)

    def receive(self, take: Callable[[Any], object], context: Context) -> None:
        """Calls a function in a context with the result of `read`; raises as `write`."""
        self._check_open()
        operation = ReceiveMessageOperation(_NO_FLAGS)
        self._begin((operation,), lambda _: context.run(lambda: take(self._deserialized(operation))))

    async def write(self, message: Any) -> None:
        """Sends a message; raises grpc.aio.BaseError if the client has gone away or the call has ended."""
        self._check_open()
        data = self._handler.response_serializer(message)
        await self._run(*self._first(), SendMessageOperation(data, _NO_FLAGS))

    async def write_all(self, messages: deque[Any], written: Callable[[], object]) -> None:
        """Sends messages until there are none left, and calls a function after each. Raises as `write`.

        Messages that are ready together share a packet.
        """
        self._check_open()
        done = self._loop.create_future()
        self._write_next(messages, written, done, None)
        await done

    async def abort(self, code: StatusCode, details: str = "", metadata: Metadata = ()) -> NoReturn:
        """Ends the call with a status; raises grpc.aio.AbortError, or InternalError if the client has gone away."""
        self._check_open()
        self._aborted = grpc.aio.AbortError("aborted by the server")
        await self._send_status(code, details, metadata or self._trailing)
        raise self._aborted

    # The handler and the core

    async def _serve(self) -> None:
        handler = self._handler
        try:
            if handler.response_streaming:
                await handler.stream_stream(None, self)
                last: tuple[Any, ...] = ()
            else:
                response = await handler.stream_unary(None, self)
                self._check_open()
                last = (SendMessageOperation(handler.response_serializer(response), _NO_FLAGS),)
            self._check_open()
            await self._send_status(StatusCode.OK, "", self._trailing, *last)
        except (asyncio.CancelledError, grpc.aio.BaseError):
            pass  # the client has gone away, or the call is aborted
        except Exception as error:  # noqa: BLE001 - the client gets it
            _log.error("call_failed", exc_info=error)
            if not self._ended:
                with suppress(grpc.aio.BaseError):
                    await self._send_status(StatusCode.UNKNOWN, f"Unexpected {type(error).__name__}", self._trailing)

    def _write_next(
        self, messages: deque[Any], written: Callable[[], object], done: asyncio.Future[None], event: Event | None
    ) -> None:
        if done.done():
            return
        if event is not None and not event.success:
            done.set_exception(_gone())
            return
        try:
            if event is not None:
                written()
            if not messages:
                done.set_result(None)
                return
            data = self._handler.response_serializer(messages.popleft())
            first = self._first()  # the core would keep it back with a message that may wait
            flags = WriteFlag.buffer_hint if messages and not first else _NO_FLAGS
            # A new function each time: one that names itself would keep the call in the core.
            following = partial(self._write_next, messages, written, done)
            self._begin((*first, SendMessageOperation(data, flags)), following)
        except Exception as error:  # noqa: BLE001 - raised by the await
            done.set_exception(error)

    def _finish(self, _: object) -> None:
        self._ended, self._aborted = True, None  # a reference cycle
        if not self._answered and not self._closed:  # the handler was canceled, or its status cannot be sent
            self._call.cancel(StatusCode.UNKNOWN.value[0], "the call has ended without a status")
        try:
            for callback in self._callbacks:
                callback(self)
        finally:
            self._end_if_over()

    async def _send_status(self, code: StatusCode, details: str, metadata: Metadata, *last: Any) -> None:
        status = SendStatusFromServerOperation(tuple(metadata), code.value[0], details, _NO_FLAGS)
        first = self._first()
        self._ended = True
        sent = self._start(*first, *last, status)
        self._answered = True
        if not await sent:
            raise _gone()

    def _first(self) -> tuple[Any, ...]:
        """Returns the operation that precedes all messages, once."""
        if self._started:
            return ()
        self._started = True
        return (SendInitialMetadataOperation(None, _NO_FLAGS),)

    def _deserialized(self, operation: Any) -> Any:
        data = operation.message()
        return grpc.aio.EOF if data is None else self._handler.request_deserializer(data)

    def _check_open(self) -> None:
        if self._aborted is not None:
            raise self._aborted
        if self._ended:
            raise grpc.aio.UsageError("the call has ended")

    async def _run(self, *operations: Any) -> None:
        if not await self._start(*operations):
            raise _gone()

    def _start(self, *operations: Any) -> asyncio.Future[bool]:
        """Starts operations; the result is whether they succeed."""
        ended = self._loop.create_future()
        self._begin(operations, lambda event: None if ended.done() else ended.set_result(event.success))
        return ended

    def _begin(self, operations: tuple[Any, ...], end: Callable[[Event], object]) -> None:
        if self._events.closed:
            raise _gone()
        if self._call.start_server_batch(operations, end):
            raise grpc.aio.InternalError("the core refuses the operation")
        self._events.expect()

    def _close(self, event: Event) -> None:
        """Cancels the handler if the client has canceled the call, or its deadline has passed."""
        self._closed = True
        if event.batch_operations[0].cancelled() and not self._ended:
            self._task.cancel()
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self._closed and self._task.done():
            self._end(self)


def _gone() -> grpc.aio.InternalError:
    return grpc.aio.InternalError("the client has gone away")
