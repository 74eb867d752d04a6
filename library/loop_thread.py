"""A thread with an event loop. It holds an open translator until the translator is closed or the program ends."""

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar
from weakref import WeakSet

from dragoman.serve.host import event_loop
from dragoman.serve.local.errors import CLOSED, ClosedError
from dragoman.serve.local.translator import LocalTranslator

P = ParamSpec("P")
T = TypeVar("T")


class LoopThread:
    """Runs calls of a translator in its event loop. Thread-safe."""

    def __init__(self, translator: LocalTranslator) -> None:
        """Waits until the translator is open; raises the error if opening fails."""
        self._process_id = os.getpid()
        self._lock = threading.Lock()
        self._closed = False
        opened = Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]()
        # A daemon, which does not keep the program from its end.
        self._thread = threading.Thread(target=_work, args=(translator, opened), name="translator", daemon=True)
        self._thread.start()
        try:
            self._loop, self._stop = opened.result()
        except BaseException:
            opened.cancel()  # Ctrl-C interrupts only this thread
            raise
        _open.add(self)

    def start(self, function: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Starts a call; raises ClosedError if the translator is closed, or open in the parent of this process."""
        if os.getpid() != self._process_id:
            raise ClosedError(f"process {self._process_id} opened the translator: open one in each process")
        with self._lock:
            if self._closed:
                raise ClosedError(CLOSED)
            return asyncio.run_coroutine_threadsafe(function(*args, **kwargs), self._loop)

    def close(self) -> None:
        """Ends all calls and waits for the end of the thread; does nothing in a fork of the process."""
        if os.getpid() != self._process_id:
            return
        with self._lock, suppress(RuntimeError):  # raised if the loop is closed
            self._closed = True
            self._loop.call_soon_threadsafe(self._stop.set)
        if threading.current_thread() is not self._thread:
            self._thread.join()


def wait(call: Future[T]) -> T:
    """Returns the result of a call. An interrupt of this thread ends the call."""
    try:
        return call.result()
    except CancelledError:
        raise ClosedError(CLOSED) from None
    except BaseException:
        call.cancel()
        raise


def _work(translator: LocalTranslator, opened: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]]) -> None:
    async def live() -> None:
        stop = asyncio.Event()
        async with translator:
            if opened.set_running_or_notify_cancel():
                opened.set_result((asyncio.get_running_loop(), stop))
                await stop.wait()

    try:
        event_loop.run(live())
    except BaseException as error:
        if opened.done():
            raise
        opened.set_exception(error)


_open = WeakSet[LoopThread]()


def _close_all() -> None:
    for thread in tuple(_open):
        thread.close()


# `atexit` is too late: before its functions run, Python refuses the threads that stop engines.
threading._register_atexit(_close_all)  # type: ignore[attr-defined] # noqa: SLF001
