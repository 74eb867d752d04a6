"""Under load, new gRPC calls come before the work of earlier ones, and the work of several calls begins together.

gRPC hands over one waiting call in several turns of the event loop, and every call in work takes its part of a turn. So
a busy loop would leave new calls in gRPC's queue until their deadlines, and nothing rejects them there. Work that
begins together shares turns, and rows of the engine's batch. The messages of a stream come in the same way.
"""

import asyncio

# Turns of the event loop in which gRPC surely hands over a waiting call or message. On one CPU, it takes four, and more
# while other threads hold Python's lock.
TURNS = 20
# A flood of rejected calls must not stop the work.
LONGEST_SECONDS = 0.05


class Arrivals:
    """Counts the calls and messages that gRPC hands over, and lets them come first. Belongs to the event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._pause: asyncio.Task[None] | None = None

    def note(self) -> None:
        """Counts a call or message that gRPC has handed over."""
        self._count += 1

    async def come_first(self) -> None:
        """Returns once gRPC hands over no more, or after `LONGEST_SECONDS`; to all that wait in one turn."""
        if self._pause is None:
            self._pause = asyncio.create_task(self._wait())
        await asyncio.shield(self._pause)

    async def _wait(self) -> None:
        loop, seen = asyncio.get_running_loop(), -1
        until_seconds = loop.time() + LONGEST_SECONDS
        while seen != self._count and loop.time() < until_seconds:
            seen = self._count
            for _ in range(TURNS):
                await asyncio.sleep(0)
        self._pause = None
