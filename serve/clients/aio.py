"""The gRPC client for asyncio; its methods are those of `serve.clients.client`.

Retries transient errors unless the server's pushback forbids it. No call outlasts its deadline.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Self, Unpack

import grpc.aio

from protos.translation_pb2 import TranslateManyRequest, TranslateManyResponse
from protos.translation_pb2_grpc import TranslationServiceStub
from serve.clients.channel import DEFAULTS, ClientSettings, open_async_channel
from serve.clients.errors import CallError, stream_error, typed_errors
from serve.clients.messages import (
    IN_FLIGHT,
    Asking,
    ManyItem,
    ManyResult,
    Texts,
    Timing,
    Unanswered,
    choose_deadline,
    read_event,
    read_scores,
    read_translations,
    score_request,
    time_left,
    translate_request,
)
from serve.translation.response import ScoreResponse, TranslationDelta, TranslationResponse

Items = AsyncIterable[ManyItem | str] | Iterable[ManyItem | str]
ManyCall = grpc.aio.StreamStreamCall[TranslateManyRequest, TranslateManyResponse]


class AsyncTranslationClient:
    """Translates over one channel. Any number of calls may run concurrently."""

    def __init__(self, channel: grpc.aio.Channel, settings: ClientSettings = DEFAULTS) -> None:
        self._stub = TranslationServiceStub(channel)
        self._settings = settings

    @classmethod
    @asynccontextmanager
    async def open(cls, target: str, settings: ClientSettings = DEFAULTS) -> AsyncIterator[Self]:
        """Opens a channel to any gRPC target, such as `host:port`, and closes it.

        Raises:
            OSError: if a file of the settings cannot be read.
        """
        async with open_async_channel(target, settings) as channel:
            yield cls(channel, settings)

    async def translate(self, texts: Texts, **asking: Unpack[Asking]) -> TranslationResponse:
        """Returns one translation per text.

        Raises:
            CallError: if the call fails.
        """
        request, timeout = translate_request(texts, asking), self._timeout(asking)
        with typed_errors():
            answer = await self._stub.Translate(request, timeout=timeout, metadata=self._settings.metadata)
        return read_translations(answer)

    async def stream(
        self, texts: Texts, **asking: Unpack[Asking]
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translations, then the response that `translate` returns.

        Raises:
            CallError: if the call fails, possibly after some deltas.
        """
        request, timeout = translate_request(texts, asking), self._timeout(asking)
        call = self._stub.TranslateStream(request, timeout=timeout, metadata=self._settings.metadata)
        try:
            with typed_errors():
                async for message in call:
                    yield read_event(message)
        finally:
            call.cancel()

    async def score(self, pairs: Iterable[tuple[str, str]], **asking: Unpack[Asking]) -> ScoreResponse:
        """Returns a score per pair of text and translation; ignores prefixes, options and pivot.

        Raises:
            CallError: if the call fails.
        """
        request, timeout = score_request(pairs, asking), self._timeout(asking)
        with typed_errors():
            answer = await self._stub.Score(request, timeout=timeout, metadata=self._settings.metadata)
        return read_scores(answer)

    async def translate_many(
        self, items: Items, *, in_flight: int = IN_FLIGHT, **timing: Unpack[Timing]
    ) -> AsyncGenerator[ManyResult]:
        """Yields the result of each item as soon as it arrives, in any order.

        When a stream breaks, unanswered items are sent again. To stop early, close the generator
        (`contextlib.aclosing`), which cancels the items in flight.

        Args:
            items: sync or async iterable; a string is an item with a single text.
            in_flight: maximum number of unanswered items.
            timing: limits for the whole call; empty: no limit.

        Raises:
            CallError: if the stream fails for good; the error of a single item is part of its result.
        """
        deadline_seconds = choose_deadline(timing, None)
        window = _Window(items, in_flight)
        feeding = asyncio.create_task(window.feed())
        try:
            while not window.answered:
                try:
                    async with aclosing(self._one_stream(window, time_left(deadline_seconds))) as results:
                        async for result in results:
                            yield result
                except CallError as error:
                    retries = self._settings.retries
                    await asyncio.sleep(window.unanswered.pause_seconds(error, deadline_seconds, retries=retries))
            await feeding
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def _one_stream(self, window: "_Window", timeout_seconds: float | None) -> AsyncGenerator[ManyResult]:
        call = self._stub.TranslateMany(timeout=timeout_seconds, metadata=self._settings.metadata)
        sending = asyncio.create_task(window.send(call))
        try:
            async for answer in call:
                yield window.take(answer)
        except grpc.RpcError as error:
            raise stream_error(error) from error
        finally:
            sending.cancel()
            call.cancel()
            await asyncio.gather(sending, return_exceptions=True)

    def _timeout(self, timing: Timing) -> float | None:
        return time_left(choose_deadline(timing, self._settings.timeout_seconds))


class _Window:
    """The unanswered items and the queue of messages to send."""

    def __init__(self, items: Items, in_flight: int) -> None:
        self.unanswered = Unanswered()
        self._items = items
        self._places = asyncio.Semaphore(in_flight)
        self._sent = asyncio.Queue[TranslateManyRequest | None]()
        self._exhausted = False

    @property
    def answered(self) -> bool:
        """True if all items are sent and answered."""
        return self._exhausted and not self.unanswered

    async def feed(self) -> None:
        """Takes items while the window has room, to their end."""
        try:
            await self._places.acquire()
            async for item in _each(self._items):
                self._sent.put_nowait(self.unanswered.add(item))
                await self._places.acquire()
        finally:
            self._exhausted = True
            self._sent.put_nowait(None)

    async def send(self, call: ManyCall) -> None:
        """Sends the unanswered items on a new stream, then further ones; half-closes the stream at the end."""
        while not self._sent.empty():
            self._sent.get_nowait()
        for message in self.unanswered.messages:
            self._sent.put_nowait(message)
        if self._exhausted:
            self._sent.put_nowait(None)
        # A broken stream raises in its reader.
        with suppress(grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            # Writing to a rejected call would hide the reason of the rejection.
            await call.initial_metadata()
            while (next_message := await self._sent.get()) is not None:
                await call.write(next_message)
            await call.done_writing()

    def take(self, answer: TranslateManyResponse) -> ManyResult:
        """Returns the result of an answered item and frees its place in the window."""
        self._places.release()
        return self.unanswered.take(answer)


async def _each(items: Items) -> AsyncIterator[ManyItem | str]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
