"""Divides the work for large requests, so that others do not wait for it.

Small input is prepared in the event loop, large input in parts in a thread. One thread serves the large requests of the
process, one part at a time, in the order of arrival. So large requests alternate, and small requests wait for none of
them. Over time, the thread works an eighth of the time: large requests occupy at most an eighth of a core. Segmentation
and tokenization release the interpreter's lock.
"""

import asyncio
import time
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from dragoman.serve.errors import DeadlineExceededError
from dragoman.serve.translation.markup import SMALL_MARKUP_BYTES
from dragoman.serve.translation.request import ModelRequest, TextRequest

# Takes less than about a millisecond in the event loop; more is worth the switch to the thread.
SMALL_TEXT_BYTES = 4096
# Characters of a part with several texts.
PART_CHARACTERS = 10_000
# NFKC makes the 3 bytes of U+FDFA into 33.
MAX_EXPANSION = 11
MAX_CHARACTER_BYTES = 4 * MAX_EXPANSION
# Longest work in the event loop without a pause, up to one step.
STRETCH_SECONDS = 0.001
# Time from one part to the next, per time of the part.
PERIODS = 8
# Rest that may be owed: a lone request of up to 25 ms of work is not slowed down.
CREDIT_SECONDS = 0.2

P = ParamSpec("P")
T = TypeVar("T")


class LargeWorkThread:
    """A thread that rests after each part."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "large-work")
        # When the rest for all parts so far is over.
        self._rested_seconds = 0.0

    async def run(self, deadline_seconds: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns the result of a function, called as one part. Canceling the call drops a part that has not started.

        Raises:
            DeadlineExceededError: if the part does not end before the deadline on the clock of `time.monotonic`.
        """
        part = partial(self._work, partial(function, *args, **kwargs))
        try:
            async with asyncio.timeout_at(deadline_seconds):
                return await asyncio.get_running_loop().run_in_executor(self._executor, part)
        except TimeoutError:
            raise DeadlineExceededError("the deadline passed before the request was prepared") from None

    def _work(self, function: Callable[[], T]) -> T:
        time.sleep(max(0.0, self._rested_seconds - CREDIT_SECONDS - time.monotonic()))
        started_seconds, used_seconds = time.monotonic(), time.thread_time()
        try:
            return function()
        finally:
            # The time in which other processes and threads had the CPU does not count.
            taken_seconds = time.thread_time() - used_seconds
            self._rested_seconds = max(self._rested_seconds, started_seconds) + PERIODS * taken_seconds


_THREAD = LargeWorkThread()
# Runs one part in the thread of the process.
run_part = _THREAD.run


async def map_texts(
    function: Callable[[TextRequest], T],
    texts: Sequence[TextRequest],
    deadline_seconds: float,
    small_bytes: int = SMALL_TEXT_BYTES,
) -> list[T]:
    """Returns the results of a function for the texts, in their order; the first error ends the calls.

    Args:
        function: thread-safe, except that it never runs twice at once for one request.
        texts: of one request.
        deadline_seconds: on the clock of `time.monotonic`.
        small_bytes: texts that take less than about a millisecond together.

    Raises:
        DeadlineExceededError: if a part does not end before the deadline.
    """
    if _are_small(texts, small_bytes):
        return list(map(function, texts))
    results: list[T] = []
    for part in _split_parts(texts):
        results += await run_part(deadline_seconds, list, map(function, part))
    return results


class Pace:
    """Lets the event loop run about once per `STRETCH_SECONDS` of a loop that calls `keep` between its steps."""

    def __init__(self) -> None:
        self._resumed_seconds = time.monotonic()

    async def keep(self) -> None:
        """Lets the event loop run if the last time was long ago."""
        if time.monotonic() - self._resumed_seconds > STRETCH_SECONDS:
            await asyncio.sleep(0)
            self._resumed_seconds = time.monotonic()


class Steps:
    """Runs the steps that follow a search, one per sentence: short ones in the event loop, others in the thread."""

    def __init__(self, request: ModelRequest) -> None:
        """Creates them for a request with sentences as texts: they take long if many have terms or placeholders."""
        characters = sum(len(text.text) for text in request.texts)
        self._short = not request.protects or characters <= SMALL_MARKUP_BYTES
        self._deadline_seconds = request.deadline_seconds
        self._pace = Pace()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns the result of a function; raises DeadlineExceededError if it does not end before the deadline."""
        if not self._short:
            return await run_part(self._deadline_seconds, function, *args, **kwargs)
        await self._pace.keep()
        return function(*args, **kwargs)


def normalized_bytes(text: str) -> int:
    """Returns an upper bound of the UTF-8 bytes of a text after NFKC, to which tokenizers normalize."""
    if text.isascii():
        return len(text)
    size = len(text.encode())
    return size if unicodedata.is_normalized("NFKC", text) else MAX_EXPANSION * size


def _are_small(texts: Sequence[TextRequest], small_bytes: int) -> bool:
    characters = sum(map(_characters, texts))
    if characters * MAX_CHARACTER_BYTES <= small_bytes:
        return True
    # The first sum keeps the second one short.
    return characters <= small_bytes and (
        sum(normalized_bytes(text.text) + normalized_bytes(text.target_prefix) for text in texts) <= small_bytes
    )


def _split_parts(texts: Sequence[TextRequest]) -> Iterator[list[TextRequest]]:
    """Yields the texts in groups of at most `PART_CHARACTERS`, or of a single text."""
    part: list[TextRequest] = []
    characters = 0
    for text in texts:
        characters += _characters(text)
        if part and characters > PART_CHARACTERS:
            yield part
            part, characters = [], _characters(text)
        part.append(text)
    yield part


def _characters(text: TextRequest) -> int:
    return len(text.text) + len(text.target_prefix)
