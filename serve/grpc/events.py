"""Brings the events of gRPC's core to the event loop, many at once.

An event reports that an operation has ended. The event loop takes all that wait: in the iteration after it has started
operations, because many end at once, and every `PAUSE_SECONDS` while there are many. Otherwise a thread waits for the
next event. So a busy server needs no system call and no switch of threads for an event; `grpc.aio` needs both.
"""

import asyncio
import threading
from contextlib import suppress
from contextvars import copy_context
from typing import Any

from grpc._cython.cygrpc import CompletionQueue, CompletionType  # type: ignore[import-not-found]

PAUSE_SECONDS = 0.001
# Events since the last wait that count as many. A single call has fewer at once, and should not wait for the pause.
MANY = 4
# Events that are taken before other work of the event loop runs.
MAX_EVENTS = 256
_NOW = 0.0  # a deadline that has passed
_ENDED = CompletionType.operation_complete


class Events:
    """A completion queue, whose tags are functions that take the event. Belongs to the event loop's thread.

    Attributes:
        closed: whether the queue has ended, so that no operation may start.
    """

    def __init__(self) -> None:
        """Starts a thread that ends after `close`. Requires a running event loop."""
        self.queue = CompletionQueue()
        self.closed = False
        self._loop = asyncio.get_running_loop()
        # Each call starts in it: the context of an operation belongs to another call.
        self._context = copy_context()
        self._taken = 0
        # Whether the events are taken in the next iteration, after the pause, or once the thread has one.
        self._soon = self._paused = self._asleep = False
        self._sleep = threading.Semaphore(0)
        threading.Thread(target=self._wait, name="grpc-events", daemon=True).start()

    def expect(self) -> None:
        """Takes the events in the next iteration; must be called after an operation has been started."""
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self._take_soon, context=self._context)

    def close(self) -> None:
        """Ends the queue, after the last event."""
        self.closed = self._asleep = True
        self.queue.shutdown()
        self._sleep.release()

    def _wait(self) -> None:
        completion = _ENDED
        while completion != CompletionType.queue_shutdown:
            if not self.closed:
                self._sleep.acquire()
            event = self.queue.poll()
            completion = event.completion_type
            with suppress(RuntimeError):  # the event loop is closed
                self._loop.call_soon_threadsafe(self._wake, event)
            del event  # it may hold a call

    def _wake(self, event: Any) -> None:
        self._asleep = self.closed
        try:
            if event.completion_type == _ENDED:
                event.tag(event)
        finally:
            self._take()

    def _take_soon(self) -> None:
        self._soon = False
        self._take()

    def _take_later(self) -> None:
        self._paused = False
        self._take()

    def _take(self) -> None:
        """Takes the events that wait, and decides when to look again."""
        poll, taken = self.queue.poll, 0
        try:
            while taken < MAX_EVENTS and (event := poll(_NOW)).completion_type == _ENDED:
                taken += 1
                event.tag(event)
        finally:
            self._taken += taken
            if taken and event.completion_type == _ENDED:  # more events may wait
                self.expect()
            self._look_again()

    def _look_again(self) -> None:
        if self._soon or self._paused or self._asleep:
            return
        self._taken, many = 0, self._taken >= MANY
        if many:
            self._paused = True
            self._loop.call_later(PAUSE_SECONDS, self._take_later, context=self._context)
        else:
            self._asleep = True
            self._sleep.release()
