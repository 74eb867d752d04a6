"""Server-sent events: a stream of translations as REST sends it (WHATWG HTML Living Standard, section 9.2).

`delta` holds what a translation grew by, `result` at last what a single answer would have held, `error` the problem
that ended the stream. While nothing comes, comments keep the connection open. Called by `serve.api.http_api`,
and by other interfaces that write their events in another form.

How long a stream waits for a client that is there and reads nothing, while it keeps a model and its answer.

Called by the streams of all interfaces.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from itertools import count
from typing import Generic, Self, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from pydantic import TypeAdapter
from starlette.types import Message, Receive, Scope, Send

from serve.api.http_problem import service_problem
from serve.errors import CancelledError, ServiceError
from serve.observability.logs import RequestRecord, hide_unexpected
from serve.translation.response import TranslationDelta, TranslationResponse

# As long as proxies wait between two writes (nginx, send_timeout).
SEND_TIMEOUT_SECONDS = 60.0


async def send_in_time(sending: Awaitable[None]) -> None:
    """Waits for a write to end.

    Raises:
        CancelledError: if it does not.
    """
    try:
        async with asyncio.timeout(SEND_TIMEOUT_SECONDS):
            await sending
    except TimeoutError:
        raise CancelledError("the client reads nothing") from None


MEDIA_TYPE = "text/event-stream"
# Proxies close connections that are silent for much longer, most often for a minute.
HEARTBEAT_SECONDS = 5.0
HEARTBEAT = format_sse_event(comment="waiting")
# Proxies that collect an answer before they pass it on are asked not to.
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}

T = TypeVar("T")
Event = TranslationDelta | TranslationResponse

_DELTAS = TypeAdapter(TranslationDelta)
_RESPONSES = TypeAdapter(TranslationResponse)


@dataclass(frozen=True, slots=True)
class EventForm(Generic[T]):
    """How an interface writes its events, numbered from 1, and the error that ends a stream.

    Attributes:
        event: given an event and its number.
        error: given the error, the id of the request and the number.
    """

    event: Callable[[T, int], bytes]
    error: Callable[[ServiceError, str, int], bytes]


class EventStream(StreamingResponse):
    """The answer to one request, from its first event or heartbeat on."""

    media_type = MEDIA_TYPE

    def __init__(self, request: Request, body: AsyncGenerator[bytes]) -> None:
        super().__init__(body, headers=HEADERS)
        self._request = request
        self._body = body

    @classmethod
    async def begin(cls, request: Request, events: AsyncGenerator[T], form: EventForm[T]) -> Self:
        """Returns the answer as soon as there is something to send, so that what fails at once has its own status.

        Raises:
            ServiceError: why there is no stream.
        """
        paced = with_pauses(events, HEARTBEAT_SECONDS)
        first = await unless_disconnected(request, anext(paced))
        return cls(request, _body(first, paced, form, request.state.record))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Sends the events.

        Raises:
            CancelledError: if the client goes away, or reads nothing.
        """

        def send_event(message: Message) -> Awaitable[None]:
            return send_in_time(send(message))

        async with aclosing(self._body):
            await unless_disconnected(self._request, self.stream_response(send_event))


async def _body(
    first: T | None, further: AsyncGenerator[T | None], form: EventForm[T], record: RequestRecord
) -> AsyncGenerator[bytes]:
    numbers = count(1)

    def write(event: T | None) -> bytes:
        return HEARTBEAT if event is None else form.event(event, next(numbers))

    try:
        with hide_unexpected(record.request_id):
            async with aclosing(further):
                yield write(first)
                async for event in further:
                    yield write(event)
    except ServiceError as error:
        record.outcome = error.reason
        yield form.error(error, record.request_id, next(numbers))


def _write_event(event: Event, number: int) -> bytes:
    if isinstance(event, TranslationDelta):
        name, data = "delta", _DELTAS.dump_json(event, exclude_none=True)
    else:
        name, data = "result", _RESPONSES.dump_json(event, exclude_none=True)
    return format_sse_event(event=name, data_str=data.decode(), id=str(number))


def _write_error(error: ServiceError, request_id: str, number: int) -> bytes:
    problem = bytes(service_problem(error, request_id).body).decode()
    return format_sse_event(event="error", data_str=problem, id=str(number))


TRANSLATION_EVENTS = EventForm(_write_event, _write_error)


async def with_pauses(events: AsyncGenerator[T], pause_seconds: float) -> AsyncGenerator[T | None]:
    """Yields the events, and None whenever none came for so long. Closes them in the end."""
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


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T:
    """Returns the result of `work`, or cancels it when the client goes away.

    Raises:
        CancelledError: if the client went away first.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.create_task(_disconnect(request))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise CancelledError("the client went away")
        return working.result()
    finally:
        working.cancel()
        watching.cancel()
        await asyncio.gather(working, watching, return_exceptions=True)


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
