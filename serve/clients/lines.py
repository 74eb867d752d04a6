"""Lines of a file descriptor, read while an event loop runs, and an ordered map over them.

Both are bounded: however long the input, no more than a window of lines is held. No thread reads, because a thread that
waits for input could be stopped by nothing. Neither knows what is done with a line; `serve.clients.translate` does.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

MAX_LINE_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 16

T = TypeVar("T")
R = TypeVar("R")


class LineError(Exception):
    """Something is wrong with a line; the message begins with its number."""

    def __init__(self, number: int, problem: str) -> None:
        super().__init__(f"line {number}: {problem}")


@dataclass(frozen=True, slots=True)
class Line:
    """A line without its line feed, and its number, counted from 1."""

    number: int
    content: bytes


async def read_lines(descriptor: int) -> AsyncGenerator[Line]:
    """Yields the lines of a pipe, terminal or file until it ends; the last one may lack its line feed.

    Raises:
        LineError: if a line is longer than MAX_LINE_BYTES.
        OSError: if reading fails.
    """
    number = 1
    rest = b""
    while chunk := await _read(descriptor):
        *lines, rest = (rest + chunk).split(b"\n")
        for content in lines:
            yield Line(number, content)
            number += 1
        if len(rest) > MAX_LINE_BYTES:
            raise LineError(number, f"longer than {MAX_LINE_BYTES} bytes")
    if rest:
        yield Line(number, rest)


async def _read(descriptor: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:
        # A regular file can be read at any time, and epoll therefore refuses to watch it.
        return os.read(descriptor, _CHUNK_BYTES)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)
    return os.read(descriptor, _CHUNK_BYTES)


async def map_in_order(
    function: Callable[[T], Coroutine[Any, Any, R]], inputs: AsyncIterator[T], in_flight: int
) -> AsyncGenerator[R]:
    """Yields `function(input)` in the order of the inputs, with up to `in_flight` of them begun and not yet taken.

    The first failure, of a call or of the inputs, is raised in its place: after every result before it. Whoever stops
    early must close the iterator (`contextlib.aclosing`); calls under way are then cancelled.
    """
    window = asyncio.Semaphore(in_flight)
    begun: asyncio.Queue[asyncio.Task[R] | None] = asyncio.Queue()
    untaken: set[asyncio.Task[Any]] = set()

    async def begin_all() -> None:
        try:
            await window.acquire()
            async for value in inputs:
                task = asyncio.create_task(function(value))
                untaken.add(task)
                begun.put_nowait(task)
                await window.acquire()
        finally:
            begun.put_nowait(None)

    feeder = asyncio.create_task(begin_all())
    try:
        while (task := await begun.get()) is not None:
            result = await task
            untaken.remove(task)
            yield result
            window.release()
        await feeder
    finally:
        for task in (feeder, *untaken):
            task.cancel()
        await asyncio.gather(feeder, *untaken, return_exceptions=True)
