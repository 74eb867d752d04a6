"""The gRPC client for asyncio. It takes and returns plain values, and raises typed errors.

Retries transient errors unless the server's pushback forbids it. No call outlasts its deadline.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Self, Unpack

import grpc.aio

from dragoman.protos.translation_pb2 import DetectRequest
from dragoman.protos.translation_pb2_grpc import TranslationServiceStub
from dragoman.serve.clients import messages
from dragoman.serve.clients.channel import DEFAULTS, ClientSettings, open_async_channel
from dragoman.serve.clients.errors import typed_errors
from dragoman.serve.clients.many import IN_FLIGHT, NO_RETRIES, RETRIES, Items, ManyResult, Window, exchange
from dragoman.serve.translation.detection import DetectResponse
from dragoman.serve.translation.response import ScoreResponse, TranslationDelta, TranslationResponse


class AsyncTranslationClient:
    """Translates over one channel. Any number of calls may run concurrently; one that fails raises a `CallError`."""

    def __init__(self, channel: grpc.aio.Channel, settings: ClientSettings = DEFAULTS) -> None:
        self._stub = TranslationServiceStub(channel)
        self._settings = settings

    @classmethod
    @asynccontextmanager
    async def open(cls, target: str, settings: ClientSettings = DEFAULTS) -> AsyncIterator[Self]:
        """Opens and closes a channel to a gRPC target, as `host:port`; raises OSError if a file cannot be read."""
        async with open_async_channel(target, settings) as channel:
            yield cls(channel, settings)

    async def translate(self, texts: messages.Texts, **asking: Unpack[messages.Asking]) -> TranslationResponse:
        """Returns one translation per text."""
        request, timeout = messages.translate_request(texts, asking), self._timeout(asking)
        with typed_errors():
            answer = await self._stub.Translate(request, timeout=timeout, metadata=self._settings.metadata)
        return messages.read_translations(answer)

    async def stream(
        self, texts: messages.Texts, **asking: Unpack[messages.Asking]
    ) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translations, then the response that `translate` returns."""
        request, timeout = messages.translate_request(texts, asking), self._timeout(asking)
        call = self._stub.TranslateStream(request, timeout=timeout, metadata=self._settings.metadata)
        try:
            with typed_errors():
                async for message in call:
                    yield messages.read_event(message)
        finally:
            call.cancel()

    async def score(self, pairs: Iterable[tuple[str, str]], **asking: Unpack[messages.Asking]) -> ScoreResponse:
        """Returns a score per pair of text and translation; ignores prefixes, options and pivot."""
        request, timeout = messages.score_request(pairs, asking), self._timeout(asking)
        with typed_errors():
            answer = await self._stub.Score(request, timeout=timeout, metadata=self._settings.metadata)
        return messages.read_scores(answer)

    async def detect(self, texts: messages.Texts, **timing: Unpack[messages.Timing]) -> DetectResponse:
        """Returns the likely languages of each text."""
        request, timeout = DetectRequest(text=[texts] if isinstance(texts, str) else texts), self._timeout(timing)
        with typed_errors():
            answer = await self._stub.Detect(request, timeout=timeout, metadata=self._settings.metadata)
        return messages.read_detections(answer)

    async def translate_many(
        self, items: Items, *, in_flight: int = IN_FLIGHT, **timing: Unpack[messages.Timing]
    ) -> AsyncGenerator[ManyResult]:
        """Yields the result of each item as soon as it arrives, in any order.

        When a stream breaks, unanswered items are sent again. The error of a single item is part of its result. To stop
        early, close the generator (`contextlib.aclosing`), which cancels the items in flight.

        Args:
            items: sync or async iterable; a string is an item with a single text.
            in_flight: maximum number of unanswered items.
            timing: limits for the whole call; empty: no limit.
        """
        deadline_seconds = messages.choose_deadline(timing, None)
        messages.time_left(deadline_seconds)
        window = Window(items, in_flight, RETRIES if self._settings.retries else NO_RETRIES)
        call = partial(self._stub.TranslateMany, metadata=self._settings.metadata)
        async with aclosing(exchange(call, window, deadline_seconds)) as results:
            async for result in results:
                yield result

    def _timeout(self, timing: messages.Timing) -> float | None:
        return messages.time_left(messages.choose_deadline(timing, self._settings.timeout_seconds))
