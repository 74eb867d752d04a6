"""The client for programs that block: plain values in, plain values out, and errors that say what to do.

It retries what a later try can mend, as the server asks, and gives no call more time than its caller has.
`serve.clients.aio` is its like for asyncio. Nothing in the service uses it.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Self, Unpack

import grpc

from protos.translation_pb2 import TranslateManyRequest
from protos.translation_pb2_grpc import TranslationServiceStub
from serve.clients.channel import DEFAULTS, ClientSettings, open_channel
from serve.clients.errors import CallError, typed_errors
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


class TranslationClient:
    """Translates over one channel, which any number of threads may use at once."""

    def __init__(self, channel: grpc.Channel, settings: ClientSettings = DEFAULTS) -> None:
        """Uses a channel of `open_channel`, or any other one."""
        self._stub = TranslationServiceStub(channel)
        self._settings = settings

    @classmethod
    @contextmanager
    def open(cls, target: str, settings: ClientSettings = DEFAULTS) -> Iterator[Self]:
        """Opens a channel to `host:port`, or whatever gRPC takes for a target, and closes it.

        Raises:
            OSError: if a file of the settings cannot be read.
        """
        with open_channel(target, settings) as channel:
            yield cls(channel, settings)

    def translate(self, texts: Texts, **asking: Unpack[Asking]) -> TranslationResponse:
        """Returns one translation for each text.

        Raises:
            CallError: why there is none.
        """
        request, timeout = translate_request(texts, asking), self._timeout(asking)
        with typed_errors():
            answer = self._stub.Translate(request, timeout=timeout, metadata=self._settings.metadata)
        return read_translations(answer)

    def stream(self, texts: Texts, **asking: Unpack[Asking]) -> Iterator[TranslationDelta | TranslationResponse]:
        """Yields what translations grow by, as it comes, and at last what `translate` returns.

        Raises:
            CallError: why there is none, at any moment; what came before is no translation then.
        """
        request, timeout = translate_request(texts, asking), self._timeout(asking)
        call = self._stub.TranslateStream(request, timeout=timeout, metadata=self._settings.metadata)
        try:
            with typed_errors():
                for message in call:
                    yield read_event(message)
        finally:
            call.cancel()

    def score(self, pairs: Iterable[tuple[str, str]], **asking: Unpack[Asking]) -> ScoreResponse:
        """Returns how probable the translation of each text is; prefixes, options and a pivot mean nothing here.

        Raises:
            CallError: why nobody knows.
        """
        request, timeout = score_request(pairs, asking), self._timeout(asking)
        with typed_errors():
            answer = self._stub.Score(request, timeout=timeout, metadata=self._settings.metadata)
        return read_scores(answer)

    def translate_many(
        self, items: Iterable[ManyItem | str], *, in_flight: int = IN_FLIGHT, **timing: Unpack[Timing]
    ) -> Iterator[ManyResult]:
        """Yields what becomes of each item, as soon as it is known, in any order.

        Whatever has no answer when a stream breaks is sent again. Items are taken from the iterable by the calling
        thread, between two results.

        Args:
            items: any number of them; a string is an item with a single text.
            in_flight: items that are on their way at once.
            timing: how long all of them together may take; if nothing is given, as long as it takes.

        Raises:
            CallError: if they cannot be asked for at all; what is wrong with one of them is its result.
        """
        deadline_seconds = choose_deadline(timing, None)
        window = _Window(items, in_flight)
        while window.refill():
            try:
                yield from self._one_stream(window, time_left(deadline_seconds))
            except CallError as error:
                time.sleep(window.unanswered.pause_seconds(error, deadline_seconds, retries=self._settings.retries))

    def _one_stream(self, window: "_Window", timeout_seconds: float | None) -> Iterator[ManyResult]:
        sent = window.begin()
        call = self._stub.TranslateMany(iter(sent.get, None), timeout=timeout_seconds, metadata=self._settings.metadata)
        try:
            with typed_errors():
                for answer in call:
                    result = window.unanswered.take(answer)
                    window.refill()
                    yield result
        finally:
            call.cancel()
            # The thread in which gRPC takes requests must not wait for ever.
            sent.put(None)

    def _timeout(self, timing: Timing) -> float | None:
        return time_left(choose_deadline(timing, self._settings.timeout_seconds))


class _Window:
    """The items that are on their way, and the stream that they are on."""

    def __init__(self, items: Iterable[ManyItem | str], in_flight: int) -> None:
        self.unanswered = Unanswered()
        self._items = iter(items)
        self._in_flight = in_flight
        self._exhausted = False
        self._sent = SimpleQueue[TranslateManyRequest | None]()

    def begin(self) -> "SimpleQueue[TranslateManyRequest | None]":
        """Returns what is to be sent on a new stream; None ends it."""
        self._sent = SimpleQueue()
        for message in self.unanswered.messages:
            self._sent.put(message)
        if self._exhausted:
            self._sent.put(None)
        return self._sent

    def refill(self) -> bool:
        """Sends items while there is room for them; returns whether any item has no answer yet."""
        while not self._exhausted and len(self.unanswered) < self._in_flight:
            item = next(self._items, None)
            if item is None:
                self._exhausted = True
                self._sent.put(None)
            else:
                self._sent.put(self.unanswered.add(item))
        return len(self.unanswered) > 0
