"""The blocking gRPC client: plain values in and out, and typed errors.

Retries transient errors unless the server's pushback forbids it. No call outlasts its deadline.
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
    """Translates over one channel. Thread-safe."""

    def __init__(self, channel: grpc.Channel, settings: ClientSettings = DEFAULTS) -> None:
        self._stub = TranslationServiceStub(channel)
        self._settings = settings

    @classmethod
    @contextmanager
    def open(cls, target: str, settings: ClientSettings = DEFAULTS) -> Iterator[Self]:
        """Opens a channel to any gRPC target, such as `host:port`, and closes it.

        Raises:
            OSError: if a file of the settings cannot be read.
        """
        with open_channel(target, settings) as channel:
            yield cls(channel, settings)

    def translate(self, texts: Texts, **asking: Unpack[Asking]) -> TranslationResponse:
        """Returns one translation per text.

        Raises:
            CallError: if the call fails.
        """
        request, timeout = translate_request(texts, asking), self._timeout(asking)
        with typed_errors():
            answer = self._stub.Translate(request, timeout=timeout, metadata=self._settings.metadata)
        return read_translations(answer)

    def stream(self, texts: Texts, **asking: Unpack[Asking]) -> Iterator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translations, then the response that `translate` returns.

        Raises:
            CallError: if the call fails, possibly after some deltas.
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
        """Returns a score per pair of text and translation; ignores prefixes, options and pivot.

        Raises:
            CallError: if the call fails.
        """
        request, timeout = score_request(pairs, asking), self._timeout(asking)
        with typed_errors():
            answer = self._stub.Score(request, timeout=timeout, metadata=self._settings.metadata)
        return read_scores(answer)

    def translate_many(
        self, items: Iterable[ManyItem | str], *, in_flight: int = IN_FLIGHT, **timing: Unpack[Timing]
    ) -> Iterator[ManyResult]:
        """Yields the result of each item as soon as it arrives, in any order.

        When a stream breaks, unanswered items are sent again. The calling thread takes items between two results.

        Args:
            items: a string is an item with a single text.
            in_flight: maximum number of unanswered items.
            timing: limits for the whole call; empty: no limit.

        Raises:
            CallError: if the stream fails for good; the error of a single item is part of its result.
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
            # Ends gRPC's sender thread, which blocks on this queue.
            sent.put(None)

    def _timeout(self, timing: Timing) -> float | None:
        return time_left(choose_deadline(timing, self._settings.timeout_seconds))


class _Window:
    """The unanswered items and the current stream."""

    def __init__(self, items: Iterable[ManyItem | str], in_flight: int) -> None:
        self.unanswered = Unanswered()
        self._items = iter(items)
        self._in_flight = in_flight
        self._exhausted = False
        self._sent = SimpleQueue[TranslateManyRequest | None]()

    def begin(self) -> "SimpleQueue[TranslateManyRequest | None]":
        """Returns the queue of messages for a new stream; None ends the stream."""
        self._sent = SimpleQueue()
        for message in self.unanswered.messages:
            self._sent.put(message)
        if self._exhausted:
            self._sent.put(None)
        return self._sent

    def refill(self) -> bool:
        """Sends items while the window has room; returns whether any item is unanswered."""
        while not self._exhausted and len(self.unanswered) < self._in_flight:
            item = next(self._items, None)
            if item is None:
                self._exhausted = True
                self._sent.put(None)
            else:
                self._sent.put(self.unanswered.add(item))
        return len(self.unanswered) > 0
