"""Request streams: items, results, and the window of unanswered items.

A stream may break before every item is answered: a server shuts down, or a connection reaches its maximum age. The
unanswered items are sent again on the next stream; translating an item twice is harmless.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import grpc.aio

from dragoman.protos.translation_pb2 import TranslateManyRequest, TranslateManyResponse
from dragoman.serve.clients.errors import CallError, UnavailableError, status_error, stream_error
from dragoman.serve.clients.messages import Asking, read_translations, time_left, translate_request
from dragoman.serve.translation.response import TranslationResponse

# Pauses between streams without the server's retry delay.
FIRST_PAUSE_SECONDS, PAUSE_FACTOR = 0.1, 3.0
IN_FLIGHT = 64


class Retries(NamedTuple):
    """How many streams in a row may fail without any answer: without and with the server's retry delay."""

    uninvited: int
    invited: int


# A server that shuts down may ask for retries for a minute. A connection at its maximum age may close during a write,
# which loses the invitation of the server.
RETRIES, INVITED_RETRIES, NO_RETRIES = Retries(5, 60), Retries(2, 60), Retries(1, 1)


@dataclass(frozen=True, slots=True)
class ManyItem:
    """One request of a stream.

    Attributes:
        texts: texts that are answered together.
        asking: arguments as of a single call; the only time limit is `timeout_seconds`, from the server's receipt on.
        tag: any value of the caller.
    """

    texts: str | Sequence[str]
    asking: Asking = field(default_factory=Asking)
    tag: object = None

    def message(self) -> TranslateManyRequest:
        """Returns the message, without an id."""
        request = translate_request(self.texts, self.asking)
        return TranslateManyRequest(request=request, timeout_seconds=self.asking.get("timeout_seconds"))


@dataclass(frozen=True, slots=True)
class ManyResult:
    """The result of one request of a stream: a response or an error."""

    item: ManyItem
    response: TranslationResponse | None = None
    error: CallError | None = None

    def get(self) -> TranslationResponse:
        """Returns the response; raises CallError if the request failed."""
        if self.error is not None:
            raise self.error
        if self.response is None:
            raise AssertionError("neither a response nor an error")
        return self.response


Items = AsyncIterable[ManyItem | str] | Iterable[ManyItem | str]
ManyCall = grpc.aio.StreamStreamCall[TranslateManyRequest, TranslateManyResponse]


class Window:
    """The unanswered items of a call, across its streams."""

    def __init__(self, items: Items, in_flight: int, retries: Retries = RETRIES) -> None:
        if in_flight < 1:
            raise ValueError(f"in_flight: {in_flight}, expected at least 1")
        self._source = items
        self._retries = retries
        self._free_requests = asyncio.Semaphore(in_flight)
        self._numbers = count()
        self._unanswered: dict[str, tuple[ManyItem, TranslateManyRequest]] = {}
        self._unsent = asyncio.Queue[TranslateManyRequest | None]()
        self._changed = asyncio.Event()
        self._exhausted = False
        self._fruitless_tries = 0
        self._invited = False

    async def feed(self) -> None:
        """Takes items while the window has room, to their end."""
        try:
            await self._free_requests.acquire()
            async for item in _each(self._source):
                self._add(ManyItem(item) if isinstance(item, str) else item)
                await self._free_requests.acquire()
        finally:
            self._exhausted = True
            self._unsent.put_nowait(None)
            self._changed.set()

    def _add(self, item: ManyItem) -> None:
        message = item.message()
        message.id = str(next(self._numbers))
        self._unanswered[message.id] = item, message
        self._unsent.put_nowait(message)
        self._changed.set()

    async def has_unanswered(self, deadline_seconds: float | None) -> bool:
        """Waits for an unanswered item; False: there is none left. Raises TooLateError if the deadline passes first."""
        while not (self._unanswered or self._exhausted):
            self._changed.clear()
            timeout_seconds = time_left(deadline_seconds)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout_seconds)
        return bool(self._unanswered)

    async def send(self, call: ManyCall) -> None:
        """Sends the unanswered items on a new stream, then further ones; half-closes the stream at the end."""
        self._unsent = asyncio.Queue()
        for _, message in self._unanswered.values():
            self._unsent.put_nowait(message)
        if self._exhausted:
            self._unsent.put_nowait(None)
        # A broken stream raises in its reader.
        with suppress(grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            # Writing to a rejected call would hide the reason of the rejection.
            await call.initial_metadata()
            while (next_message := await self._unsent.get()) is not None:
                await call.write(next_message)
            await call.done_writing()

    def take(self, answer: TranslateManyResponse) -> ManyResult:
        """Returns the result of an answered item and frees its part of the window."""
        item, _ = self._unanswered.pop(answer.id)
        self._fruitless_tries = 0
        self._free_requests.release()
        if answer.HasField("error"):
            return ManyResult(item, error=status_error(answer.error))
        return ManyResult(item, response=read_translations(answer.response))

    def check_answered(self) -> None:
        """Checks that the end of a stream without an error leaves no item unanswered.

        Raises UnavailableError if it does.
        """
        if self._unanswered:
            raise UnavailableError(grpc.StatusCode.UNAVAILABLE, "the stream ended without all responses")

    def pause_seconds(self, error: CallError, deadline_seconds: float | None) -> float:
        """Returns the pause in seconds before the next stream, given the error of the last one.

        Raises:
            CallError: `error`, if another stream would not help, or not before the deadline.
        """
        self._fruitless_tries += 1
        pause_seconds = error.retry_after_seconds
        # The stream after an invitation may still have been opened on the closing connection.
        max_tries = self._retries.uninvited if pause_seconds is None and not self._invited else self._retries.invited
        self._invited = pause_seconds is not None
        if not isinstance(error, UnavailableError) or self._fruitless_tries >= max_tries:
            raise error
        if pause_seconds is None:
            pause_seconds = FIRST_PAUSE_SECONDS * PAUSE_FACTOR ** (self._fruitless_tries - 1)
        if deadline_seconds is not None and time.monotonic() + pause_seconds >= deadline_seconds:
            raise error
        return pause_seconds


async def exchange(
    open_call: Callable[..., ManyCall], window: Window, deadline_seconds: float | None
) -> AsyncGenerator[ManyResult]:
    """Yields the results of a window's items; opens one stream after another while items are unanswered.

    Raises CallError if the last stream fails.
    """
    feeding = asyncio.create_task(window.feed())
    try:
        while await window.has_unanswered(deadline_seconds):
            try:
                async with aclosing(_one_stream(open_call(timeout=time_left(deadline_seconds)), window)) as results:
                    async for result in results:
                        yield result
            except CallError as error:
                await asyncio.sleep(window.pause_seconds(error, deadline_seconds))
        await feeding
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)


async def _one_stream(call: ManyCall, window: Window) -> AsyncGenerator[ManyResult]:
    sending = asyncio.create_task(window.send(call))
    try:
        async for answer in call:
            yield window.take(answer)
        window.check_answered()
    except grpc.RpcError as error:
        raise stream_error(error) from error
    finally:
        sending.cancel()
        call.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _each(items: Items) -> AsyncIterator[ManyItem | str]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
