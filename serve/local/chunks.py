"""Chunks: texts that are translated as one request. A few chunks run at once; results have the order of the texts."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

# Enough that the cost of a request vanishes, and few enough that the event loop serves others in between.
CHUNK_TEXTS = 256
# Chunks of one call that run at once: the engines always find the next sentences.
IN_FLIGHT = 4
# A slow source does not hold up the texts that it has given for longer.
MAX_AGE_SECONDS = 0.05

T = TypeVar("T")
R = TypeVar("R")


class Chunk(NamedTuple):
    """Consecutive texts of the caller.

    Attributes:
        first: index of the first text among those of the caller.
    """

    first: int
    texts: list[str]


class _Chunker:
    """Collects texts until they fill a chunk."""

    def __init__(self) -> None:
        self._chunk = Chunk(0, [])
        self._due_seconds = 0.0

    def add(self, text: str) -> Chunk | None:
        """Adds a text; returns the chunk that it completes."""
        texts = self._chunk.texts
        if not texts:
            self._due_seconds = time.monotonic() + MAX_AGE_SECONDS
        texts.append(text)
        return self.rest() if len(texts) >= CHUNK_TEXTS or time.monotonic() > self._due_seconds else None

    def rest(self) -> Chunk | None:
        """Returns the texts that do not fill a chunk; None: there are none."""
        chunk = self._chunk
        self._chunk = Chunk(chunk.first + len(chunk.texts), [])
        return chunk if chunk.texts else None


def chunks_of(texts: Iterable[str]) -> Iterator[Chunk]:
    """Yields all texts in chunks."""
    chunker = _Chunker()
    for text in texts:
        if chunk := chunker.add(text):
            yield chunk
    if chunk := chunker.rest():
        yield chunk


async def chunks_of_any(texts: AsyncIterable[str] | Iterable[str]) -> AsyncIterator[Chunk]:
    """Yields the texts of a blocking or an asynchronous iterable in chunks."""
    if not isinstance(texts, AsyncIterable):
        for chunk in chunks_of(texts):
            yield chunk
        return
    chunker = _Chunker()
    async for text in texts:
        if last := chunker.add(text):
            yield last
    if last := chunker.rest():
        yield last


async def map_in_order(
    function: Callable[[T], Coroutine[Any, Any, R]], inputs: AsyncIterator[T], in_flight: int
) -> AsyncGenerator[R]:
    """Yields `function(input)` in the order of the inputs, with up to `in_flight` started and not yet yielded.

    The first failure of a call or of the inputs is raised after all earlier results. To stop early, close the generator
    (`contextlib.aclosing`), which cancels running calls.
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
