"""The event loop of a server: that of uvloop where it is installed, otherwise that of asyncio.

The supervisor of several processes has asyncio's, because it forks while its loop runs.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

_new_event_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
with suppress(ImportError):  # no platform must have it
    import uvloop

    _new_event_loop = uvloop.new_event_loop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that runs in a new event loop, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=_new_event_loop) as runner:
        return runner.run(main)
