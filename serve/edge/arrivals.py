"""Under load, new requests come before the work of earlier ones, and the work of several requests begins together.

gRPC hands over one waiting call, or message of a stream, in several iterations of the event loop, and all work takes
its part of an iteration. So a busy loop would leave new calls in gRPC's queue until their deadlines, and nothing
rejects them there. Work that begins together shares iterations, and rows of the engine's batch, over REST too.
"""

import asyncio
from collections.abc import Callable

# Iterations of the event loop in which gRPC surely hands over a call or message that waits. On one CPU, it takes four,
# and more while other threads hold Python's lock.
GRPC_ITERATIONS = 20
# Iterations from bytes in a socket to a request that is read: the transport's, the start of its task, and its run.
HTTP_ITERATIONS = 3
# A flood of rejected calls must not stop the work.
MAX_SECONDS = 0.02


class Arrivals:
    """Counts the requests of one interface that arrive, and lets them come first. Belongs to the event loop."""

    def __init__(self, iterations: int, busy: Callable[[], bool]) -> None:
        """Starts without requests; `busy` returns whether the server is, and a request arrives within `iterations`."""
        self._iterations = iterations
        self._busy = busy
        self._count = 0
        self._pause: asyncio.Task[None] | None = None

    def note(self) -> None:
        """Counts a request, or a message of a stream."""
        self._count += 1

    async def come_first(self) -> None:
        """Waits, if the server is busy, until no more arrive or `MAX_SECONDS` are over; all waits end together."""
        if not self._busy():
            return
        if self._pause is None:
            self._pause = asyncio.create_task(self._wait())
        await asyncio.shield(self._pause)

    async def _wait(self) -> None:
        loop, seen = asyncio.get_running_loop(), -1
        until_seconds = loop.time() + MAX_SECONDS
        while seen != self._count and loop.time() < until_seconds:
            seen = self._count
            for _ in range(self._iterations):
                await asyncio.sleep(0)
        self._pause = None
