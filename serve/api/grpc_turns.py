"""Under load, new gRPC calls come before the work of earlier ones.

gRPC hands over one waiting call in several turns of the event loop, and every call in work takes its part of a turn. So
a busy loop would leave new calls in gRPC's queue until their deadlines, and nothing rejects them there.
"""

import asyncio

# Turns of the event loop in which gRPC surely hands over a waiting call. On one CPU, it takes four.
TURNS = 6
# A flood of rejected calls must not stop the work.
MOST_WAITS = 8


class NewCalls:
    """Counts the calls that gRPC hands over, and lets them come first. Belongs to the event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._turn = asyncio.Lock()

    def note(self) -> None:
        """Counts a call that gRPC has handed over."""
        self._count += 1

    async def come_first(self) -> None:
        """Returns once gRPC hands over no more calls, or after several; to one waiting call after the other."""
        async with self._turn:
            for _ in range(MOST_WAITS):
                seen = self._count
                for _ in range(TURNS):
                    await asyncio.sleep(0)
                if seen == self._count:
                    return
