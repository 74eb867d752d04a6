"""Bounds the waits for clients over gRPC: each by time, and all of one kind by number.

If there are too many, the longest wait ends: an active client waits for the shortest time, so that idle clients never
take its place.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from dragoman.serve.edge.load_shedding import REFUSAL
from dragoman.serve.errors import DeadlineExceededError, QueueFullError, ServiceError
from dragoman.serve.grpc.connections import CONNECTION

# Streams of requests that wait for their next message.
IDLE_STREAMS = 1024
IDLE_STREAM_SECONDS = 300.0

End = Callable[[ServiceError], object]


@dataclass(eq=False, slots=True)
class _Wait:
    until_seconds: float


class Waits:
    """The current waits of one kind. Belongs to the event loop's thread."""

    def __init__(self, awaited: str, limit: int, seconds: float, *, idle: bool = True) -> None:
        """Bounds each wait by `seconds` and their number by `limit`; errors name the message in `awaited`.

        `idle`: a call that waits does nothing else, so that its connection may be closed.
        """
        self._awaited = awaited
        self._limit = limit
        self._seconds = seconds
        self._idle = idle
        self._ends: dict[_Wait, End] = {}  # longest wait first
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, end: End) -> Callable[[], object]:
        """Starts a wait and returns the function that finishes it.

        Calls `end` at most once, with a DeadlineExceededError after the time, with a QueueFullError if there are too
        many waits.
        """
        if len(self._ends) >= self._limit:
            self._end(next(iter(self._ends)), QueueFullError)
        loop = asyncio.get_running_loop()
        key = _Wait(loop.time() + self._seconds)
        self._ends[key] = end
        if self._timer is None:
            self._timer = loop.call_at(key.until_seconds, self._end_late)
        connection = CONNECTION.get() if self._idle else None
        if connection is not None:
            connection.waiting_calls += 1

        def finish() -> None:
            self._ends.pop(key, None)
            if connection is not None:
                connection.waiting_calls -= 1

        return finish

    def _end_late(self) -> None:
        """Ends the waits whose time is over. All take the same time, so that one timer serves the longest of them."""
        loop, self._timer = asyncio.get_running_loop(), None
        while self._ends and (oldest := next(iter(self._ends))).until_seconds <= loop.time():
            self._end(oldest, DeadlineExceededError)
        if self._ends:
            self._timer = loop.call_at(oldest.until_seconds, self._end_late)

    def _end(self, key: "_Wait", kind: type[ServiceError]) -> None:
        end = self._ends.pop(key, None)
        if end is not None:
            late = f"{self._awaited}: expected within {self._seconds:g} s, got none"
            end(kind(REFUSAL if kind is QueueFullError else late))


class LimitedWait:
    """The context of one wait, which cancels its block when the wait ends.

    It raises DeadlineExceededError after the time, and QueueFullError if there are too many waits. A class, because a
    generator would take twice the time, for every call.
    """

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._error: ServiceError | None = None

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._cancellations = self._task.cancelling() if self._task else 0
        self._finish = self._waits.begin(self._end)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._finish()
        if self._error is not None and self._task is not None:
            alone = self._task.uncancel() <= self._cancellations
            if alone and isinstance(error, asyncio.CancelledError):
                raise self._error from None

    def _end(self, error: ServiceError) -> None:
        self._error = error
        if self._task is not None:
            self._task.cancel()


def idle_streams() -> Waits:
    """Returns the bounds of streams of requests that wait for their next message."""
    return Waits("message of the stream", IDLE_STREAMS, IDLE_STREAM_SECONDS, idle=False)
