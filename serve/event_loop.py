"""The event loop of a server: that of uvloop where it is installed, otherwise that of asyncio.

The supervisor of several processes has asyncio's, because it forks while its loop runs.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def _factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        from uvloop import new_event_loop  # noqa: PLC0415 - no platform must have it
    except ImportError:
        return asyncio.new_event_loop
    return new_event_loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Returns the result of a coroutine that runs in a new event loop, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=_factory()) as runner:
        return runner.run(main)
