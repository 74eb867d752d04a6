"""The client for asyncio: plain values in, plain values out, and errors that say what to do.

It retries what a later try can mend, as the server asks, and gives no call more time than its caller has.
`serve.clients.client` is its like for programs that block. Commands use it by `serve.clients.text_clients`.
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
    """Translates over one channel; any number of calls may be under way at once."""

    def __init__(self, channel: grpc.aio.Channel, settings: ClientSettings = DEFAULTS) -> None:
        """Uses a channel of `open_async_channel`, or any other one."""
        self._stub = TranslationServiceStub(channel)
        self._settings = settings

    @classmethod
    @asynccontextmanager
    async def open(cls, target: str, settings: ClientSettings = DEFAULTS) -> AsyncIterator[Self]:
        """Opens a channel to `host:port`, or whatever gRPC takes for a target, and closes it.

        Raises:
            OSError: if a file of the settings cannot be read.
        """
        async with open_async_channel(target, settings) as channel:
            yield cls(channel, settings)

    async def translate(self, texts: Texts, **asking: Unpack[Asking]) -> TranslationResponse:
        """Returns one translation for each text.

        Raises:
            CallError: why there is none.
        """
        request, timeout = translate_request(texts, asking), self._timeout(asking)
        with typed_errors():
            answer = await self._stub.Translate(request, timeout=timeout, metadata=self._settings.metadata)
        return read_translations(answer)

    async def stream(
        self, texts: Texts, **asking: Unpack[Asking]
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields what translations grow by, as it comes, and at last what `translate` returns.

        Raises:
            CallError: why there is none, at any moment; what came before is no translation then.
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
        """Returns how probable the translation of each text is; prefixes, options and a pivot mean nothing here.

        Raises:
            CallError: why nobody knows.
        """
        request, timeout = score_request(pairs, asking), self._timeout(asking)
        with typed_errors():
            answer = await self._stub.Score(request, timeout=timeout, metadata=self._settings.metadata)
        return read_scores(answer)

    async def translate_many(
        self, items: Items, *, in_flight: int = IN_FLIGHT, **timing: Unpack[Timing]
    ) -> AsyncGenerator[ManyResult]:
        """Yields what becomes of each item, as soon as it is known, in any order.

        Whatever has no answer when a stream breaks is sent again. Whoever stops early must close the generator
        (`contextlib.aclosing`); what is on its way is then cancelled.

        Args:
            items: any number of them, which may come at any time; a string is an item with a single text.
            in_flight: items that are on their way at once.
            timing: how long all of them together may take; if nothing is given, as long as it takes.

        Raises:
            CallError: if they cannot be asked for at all; what is wrong with one of them is its result.
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
    """The items that are on their way, and those that have to be sent."""

    def __init__(self, items: Items, in_flight: int) -> None:
        self.unanswered = Unanswered()
        self._items = items
        self._places = asyncio.Semaphore(in_flight)
        self._sent = asyncio.Queue[TranslateManyRequest | None]()
        self._exhausted = False

    @property
    def answered(self) -> bool:
        """Whether there is nothing left to ask."""
        return self._exhausted and not self.unanswered

    async def feed(self) -> None:
        """Takes items as there is room for them, to their end."""
        try:
            await self._places.acquire()
            async for item in _each(self._items):
                self._sent.put_nowait(self.unanswered.add(item))
                await self._places.acquire()
        finally:
            self._exhausted = True
            self._sent.put_nowait(None)

    async def send(self, call: ManyCall) -> None:
        """Sends what has no answer on a new stream, and what comes later; then half-closes it."""
        while not self._sent.empty():
            self._sent.get_nowait()
        for message in self.unanswered.messages:
            self._sent.put_nowait(message)
        if self._exhausted:
            self._sent.put_nowait(None)
        # Whoever reads the stream is told that it broke.
        with suppress(grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
            # A call that is refused must not be written to: the reason would be lost.
            await call.initial_metadata()
            while (next_message := await self._sent.get()) is not None:
                await call.write(next_message)
            await call.done_writing()

    def take(self, answer: TranslateManyResponse) -> ManyResult:
        """Returns what became of an item, and makes room for another one."""
        self._places.release()
        return self.unanswered.take(answer)


async def _each(items: Items) -> AsyncIterator[ManyItem | str]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
