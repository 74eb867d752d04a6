"""Server-sent events: streams of translations over REST (WHATWG HTML Living Standard, section 9.2).

`delta` events hold the new text of a translation. The last event is a `result`, equal to the unary response, or an
`error` with a problem document. Comments are heartbeats between events.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from typing import Generic, Self, TypeVar

from pydantic import TypeAdapter
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from dragoman.serve.edge.large_answers import write_json
from dragoman.serve.edge.load_shedding import IN_FLIGHT
from dragoman.serve.edge.problems import service_problem
from dragoman.serve.edge.reader import unless_disconnected
from dragoman.serve.errors import CancelledError, ServiceError
from dragoman.serve.http.connection import FLOW, TRANSPORT
from dragoman.serve.observability.logs import HiddenErrors, RequestRecord
from dragoman.serve.translation.response import TranslationDelta, TranslationResponse

MEDIA_TYPE = "text/event-stream"
# Proxies close connections that are idle for much longer, usually a minute.
HEARTBEAT_SECONDS = 5.0
HEARTBEAT = b": waiting\n\n"
# Asks proxies not to buffer the response.
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}

T = TypeVar("T")
Event = TranslationDelta | TranslationResponse

_DELTAS = TypeAdapter(TranslationDelta)
_RESPONSES = TypeAdapter(TranslationResponse)


@dataclass(frozen=True, slots=True)
class EventForm(Generic[T]):
    """Format of an interface's events, numbered from 1, and of the error that ends a stream, with the request id."""

    event: Callable[[T, int], Awaitable[bytes]]
    error: Callable[[ServiceError, str, int], bytes]


class EventStream(StreamingResponse):
    """The response to one request, from its first event or heartbeat on."""

    media_type = MEDIA_TYPE

    def __init__(self, request: Request, body: AsyncGenerator[bytes]) -> None:
        super().__init__(body, headers=HEADERS)
        self._request = request
        self._body = body

    @classmethod
    async def begin(cls, request: Request, events: AsyncGenerator[T], form: EventForm[T]) -> Self:
        """Returns the response once the first event or heartbeat is due, so that an early error sets the HTTP status.

        Raises ServiceError if the stream fails before its first event.
        """
        paced = with_pauses(events, HEARTBEAT_SECONDS)
        first = await unless_disconnected(request, anext(paced))
        return cls(request, _body(first, paced, form, request.state.record))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - defined by ASGI
        """Sends the events; raises CancelledError if the client disconnects or does not read."""
        state = scope.get("state", {})

        async def send_event(message: Message) -> None:
            if FLOW in state:
                if not state[FLOW].reads.is_set():  # the client does not read
                    state[IN_FLIGHT].leave()
                await state[FLOW].drain()
                if state[TRANSPORT].is_closing():  # the event would be dropped
                    raise CancelledError("the client disconnected")
            await send(message)

        async with aclosing(self._body):
            await unless_disconnected(self._request, self.stream_response(send_event))


async def _body(
    first: T | None, further: AsyncGenerator[T | None], form: EventForm[T], record: RequestRecord
) -> AsyncGenerator[bytes]:
    numbers = count(1)

    async def write(event: T | None) -> bytes:
        return HEARTBEAT if event is None else await form.event(event, next(numbers))

    try:
        with HiddenErrors(record.request_id):
            async with aclosing(further):
                yield await write(first)
                async for event in further:
                    yield await write(event)
    except ServiceError as error:
        record.outcome = error.reason
        yield form.error(error, record.request_id, next(numbers))


def format_event(data: bytes, name: str = "", number: int | None = None) -> bytes:
    """Returns an event of a stream; the data is JSON, which has no line break."""
    head = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n%b\n" % (head, data, b"" if number is None else b"id: %d\n" % number)


async def _write_event(event: Event, number: int) -> bytes:
    if isinstance(event, TranslationDelta):
        name, data = "delta", _DELTAS.dump_json(event, exclude_none=True)
    else:
        name, data = "result", await write_json(event, _RESPONSES)
    return format_event(data, name, number)


def _write_error(error: ServiceError, request_id: str, number: int) -> bytes:
    return format_event(bytes(service_problem(error, request_id).body), "error", number)


TRANSLATION_EVENTS = EventForm(_write_event, _write_error)


async def with_pauses(events: AsyncGenerator[T], pause_seconds: float) -> AsyncGenerator[T | None]:
    """Yields the events, and None after each pause without one. Closes them at the end."""
    async with aclosing(events):
        following = asyncio.ensure_future(anext(events))
        try:
            while True:
                await asyncio.wait((following,), timeout=pause_seconds)
                if not following.done():
                    yield None
                    continue
                try:
                    event = following.result()
                except StopAsyncIteration:
                    return
                yield event
                following = asyncio.ensure_future(anext(events))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
