"""Work of many connections, one step in each iteration of the event loop."""

import asyncio
from collections import deque
from collections.abc import Callable


class StepQueue:
    """Steps that run one per iteration, so that everything else goes on between them."""

    def __init__(self) -> None:
        self._waiting = deque[Callable[[], object]]()

    def add(self, step: Callable[[], object]) -> None:
        """Runs a step after those before it. Requires a running event loop."""
        self._waiting.append(step)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        try:
            self._waiting[0]()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._run)
