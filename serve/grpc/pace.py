"""Slows down clients whose calls are refused again and again: beyond a rate, each refusal is sent late.

Until then the call is one of the concurrent calls of its connection, so that the client can send few new ones. Calls of
other clients thus wait for few refusals.
"""

import asyncio
import time
from collections.abc import Callable

# Refusals of one caller that are sent at once, and how many more each second.
REFUSALS_AT_ONCE = 100
REFUSALS_PER_SECOND = 50.0
# Later, the server would seem to hang.
MAX_SECONDS = 2.0
# Beyond this number of callers, the server forgets those that may send all at once again.
MANY_CALLERS = 1024


class RefusalPace:
    """When the refusals of each caller are sent. Belongs to the event loop's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # When each caller may send all at once again.
        self._free_seconds = dict[str, float]()

    async def wait(self, caller: str) -> None:
        """Waits until a refusal may be sent."""
        if seconds := self.count(caller):
            await asyncio.sleep(seconds)

    def count(self, caller: str) -> float:
        """Counts a refusal; returns after how many seconds it may be sent."""
        now_seconds, at_once_seconds = self._clock(), REFUSALS_AT_ONCE / REFUSALS_PER_SECOND
        if len(self._free_seconds) >= MANY_CALLERS:
            self._free_seconds = {duration: free for duration, free in self._free_seconds.items() if free > now_seconds}
        free_seconds = max(now_seconds, self._free_seconds.get(caller, now_seconds)) + 1 / REFUSALS_PER_SECOND
        free_seconds = min(free_seconds, now_seconds + at_once_seconds + MAX_SECONDS)
        self._free_seconds[caller] = free_seconds
        return max(0.0, free_seconds - now_seconds - at_once_seconds)
