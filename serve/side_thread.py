"""Work in threads that nobody has to wait for: what loads for minutes or hangs must not hold up the end of the process.

`asyncio.to_thread` would, because the event loop ends only after its threads have. Called by whatever opens and loads
models; `serve.app` looks in the end whether such a thread is left.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

SIDE_THREAD = "aside"

T = TypeVar("T")


async def run_aside(function: Callable[[], T]) -> T:
    """Returns or raises what a function does. If the call is cancelled, the function goes on alone."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from now on it cannot be cancelled, and is complete in the end

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the function is waited for
            future.set_exception(error)

    threading.Thread(target=work, name=SIDE_THREAD, daemon=True).start()
    return await asyncio.wrap_future(future)
