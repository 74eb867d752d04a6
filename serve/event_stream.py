"""Server-sent events: a stream of translations as REST sends it (WHATWG HTML Living Standard, section 9.2).

`delta` holds what a translation grew by, `result` at last what a single answer would have held, `error` the problem
that ended the stream. While nothing comes, comments keep the connection open. Called by `serve.http_api`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from itertools import count
from typing import Self, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from pydantic import TypeAdapter
from starlette.types import Receive, Scope, Send

from serve.answer import TranslationDelta, TranslationResponse
from serve.errors import CancelledError, ServiceError
from serve.http_problem import service_problem
from serve.logs import RequestRecord, hide_unexpected

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


class EventStream(StreamingResponse):
    """The answer to one request, from its first event or heartbeat on."""

    media_type = MEDIA_TYPE

    def __init__(self, request: Request, body: AsyncGenerator[bytes]) -> None:
        super().__init__(body, headers=HEADERS)
        self._request = request
        self._body = body

    @classmethod
    async def begin(cls, request: Request, events: AsyncGenerator[Event]) -> Self:
        """Returns the answer as soon as there is something to send, so that what fails at once has its own status.

        Raises:
            ServiceError: why there is no stream.
        """
        paced = with_pauses(events, HEARTBEAT_SECONDS)
        first = await unless_disconnected(request, anext(paced))
        return cls(request, _body(first, paced, request.state.record))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Sends the events.

        Raises:
            CancelledError: if the client goes away.
        """
        async with aclosing(self._body):
            await unless_disconnected(self._request, self.stream_response(send))


async def _body(
    first: Event | None, further: AsyncGenerator[Event | None], record: RequestRecord
) -> AsyncGenerator[bytes]:
    numbers = count(1)
    try:
        with hide_unexpected(record.request_id):
            async with aclosing(further):
                yield _format(first, numbers)
                async for event in further:
                    yield _format(event, numbers)
    except ServiceError as error:
        record.outcome = error.reason
        problem = bytes(service_problem(error, record.request_id).body).decode()
        yield format_sse_event(event="error", data_str=problem, id=str(next(numbers)))


def _format(event: Event | None, numbers: "count[int]") -> bytes:
    if event is None:
        return HEARTBEAT
    if isinstance(event, TranslationDelta):
        name, data = "delta", _DELTAS.dump_json(event, exclude_none=True)
    else:
        name, data = "result", _RESPONSES.dump_json(event, exclude_none=True)
    return format_sse_event(event=name, data_str=data.decode(), id=str(next(numbers)))


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
