"""A function in a daemon thread can be awaited, but does not delay the end of the event loop."""

import asyncio
import threading

import pytest

from serve.system import run_in_daemon_thread

WAIT_SECONDS = 20.0


def test_the_result_or_exception_of_a_function_is_propagated() -> None:
    async def work() -> str:
        with pytest.raises(ZeroDivisionError):
            await run_in_daemon_thread(lambda: 1 // 0)
        return await run_in_daemon_thread(lambda: threading.current_thread().name)

    assert asyncio.run(work()) != threading.current_thread().name


def test_an_event_loop_ends_while_a_function_runs() -> None:
    begun, over, done = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert over.wait(WAIT_SECONDS)
        done.set()

    async def work() -> None:
        task = asyncio.create_task(run_in_daemon_thread(wait))
        await asyncio.to_thread(begun.wait, WAIT_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert not done.is_set()
    over.set()
    assert done.wait(WAIT_SECONDS)
