"""Counts what uses a thing, so that its end can wait until nothing does."""

import asyncio
from types import TracebackType


class Uses:
    """The running blocks of a context manager that may be entered many times.

    Not thread-safe: used in the event loop's thread.

    Attributes:
        count: how many blocks run.
    """

    def __init__(self) -> None:
        self.count = 0
        self._none = asyncio.Event()

    def __enter__(self) -> None:
        """Begins a use, which ends with the block."""
        self.count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.count -= 1
        if not self.count:
            self._none.set()

    async def wait_none(self) -> None:
        """Waits until nothing uses the thing; a use may begin again and again meanwhile."""
        while self.count:
            self._none.clear()
            await self._none.wait()
