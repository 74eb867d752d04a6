"""Bounds the waits for clients over gRPC: each by time, and all of one kind by number.

If there are too many, the longest wait ends: an active client waits for the shortest time, so that idle clients never
take its place.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from serve.api.load_shedding import REFUSAL
from serve.errors import DeadlineExceededError, QueueFullError, ServiceError

# Streams of requests that wait for their next message.
IDLE_STREAMS = 1024
IDLE_STREAM_SECONDS = 300.0

End = Callable[[ServiceError], object]


class Waits:
    """The current waits of one kind. Belongs to the event loop's thread."""

    def __init__(self, awaited: str, limit: int, seconds: float) -> None:
        """Bounds each wait by `seconds` and their number by `limit`; errors name what is `awaited`."""
        self._awaited = awaited
        self._limit = limit
        self._seconds = seconds
        self._ends: dict[object, End] = {}  # longest wait first

    def begin(self, end: End) -> Callable[[], None]:
        """Starts a wait and returns the function that finishes it.

        Calls `end` at most once, with a DeadlineExceededError after the time, with a QueueFullError if there are too
        many waits.
        """
        if len(self._ends) >= self._limit:
            self._end(next(iter(self._ends)), QueueFullError)
        key = object()
        timer = asyncio.get_running_loop().call_later(self._seconds, self._end, key, DeadlineExceededError)
        self._ends[key] = end

        def finish() -> None:
            timer.cancel()
            self._ends.pop(key, None)

        return finish

    def limit(self) -> "LimitedWait":
        """Returns the context of one wait, which cancels its block when the wait ends.

        It raises DeadlineExceededError after the time, and QueueFullError if there are too many waits.
        """
        return LimitedWait(self)

    def _end(self, key: object, kind: type[ServiceError]) -> None:
        end = self._ends.pop(key, None)
        if end is not None:
            late = f"{self._awaited}: expected within {self._seconds:g} s, got none"
            end(kind(REFUSAL if kind is QueueFullError else late))


class LimitedWait:
    """See `Waits.limit`. A class, because a generator would take twice the time, for every call."""

    def __init__(self, waits: Waits) -> None:
        self._waits = waits
        self._timeout = asyncio.timeout(None)
        self._error: ServiceError | None = None

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()
        self._finish = self._waits.begin(self._end)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()
        try:
            await self._timeout.__aexit__(kind, error, trace)
        except TimeoutError:
            if self._error is not None:
                raise self._error from None
            raise

    def _end(self, error: ServiceError) -> None:
        self._error = error
        self._timeout.reschedule(asyncio.get_running_loop().time())


def idle_streams() -> Waits:
    """Returns the bounds of streams of requests that wait for their next message."""
    return Waits("message of the stream", IDLE_STREAMS, IDLE_STREAM_SECONDS)
