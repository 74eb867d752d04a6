"""Bounds the waits for clients over gRPC: each by time, and all of one kind by number.

If there are too many, the longest wait ends: an active client waits for the shortest time, so that idle clients never
take its place.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

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
            self._end(next(iter(self._ends)), QueueFullError(REFUSAL))
        key = object()
        late = DeadlineExceededError(f"{self._awaited}: expected within {self._seconds:g} s, got none")
        timer = asyncio.get_running_loop().call_later(self._seconds, self._end, key, late)
        self._ends[key] = end

        def finish() -> None:
            timer.cancel()
            self._ends.pop(key, None)

        return finish

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Cancels the block when its wait ends.

        Raises:
            DeadlineExceededError: after the time.
            QueueFullError: if there are too many waits.
        """
        errors: list[ServiceError] = []
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(None) as timeout:

                def end(error: ServiceError) -> None:
                    errors.append(error)
                    timeout.reschedule(loop.time())

                finish = self.begin(end)
                try:
                    yield
                finally:
                    finish()
        except TimeoutError:
            raise errors[0] from None

    def _end(self, key: object, error: ServiceError) -> None:
        end = self._ends.pop(key, None)
        if end is not None:
            end(error)


def idle_streams() -> Waits:
    """Returns the bounds of streams of requests that wait for their next message."""
    return Waits("message of the stream", IDLE_STREAMS, IDLE_STREAM_SECONDS)
