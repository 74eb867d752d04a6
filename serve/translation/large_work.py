"""Divides the work for large requests, so that others do not wait for it.

Small work is done in the event loop, large work in parts in a thread. One thread serves the large requests of the
process, one part at a time, in the order of arrival. So large requests alternate, and small requests wait for none of
them. Over time, the thread works an eighth of the time: large requests occupy at most an eighth of a core. Tokenization
of lists does not count: SentencePiece runs it in a thread of its own. It and segmentation release the interpreter's
lock.
"""

import asyncio
import time
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from dragoman.serve.errors import DeadlineExceededError

# Takes less than about a millisecond in the event loop; more is worth the switch to the thread.
SMALL_TEXT_BYTES = 4096
# Characters of a part with several items in the thread, and in the event loop.
PART_CHARACTERS = 10_000
STRETCH_CHARACTERS = SMALL_TEXT_BYTES
# NFKC makes the 3 bytes of U+FDFA into 33.
MAX_EXPANSION = 11
# Longest work in the event loop without a pause, up to one step.
STRETCH_SECONDS = 0.001
# Time from one part to the next, per time of the part.
PERIODS = 8
# Rest that may be owed: a lone request of up to 25 ms of work is not slowed down.
CREDIT_SECONDS = 0.2

P = ParamSpec("P")
T = TypeVar("T")
Item = TypeVar("Item")
Result = TypeVar("Result")


class LargeWorkThread:
    """A thread that rests after each part.

    Attributes:
        periods: `PERIODS`; 1 in a process that has no other clients.
    """

    periods = PERIODS

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "large-work")
        # When the rest for all parts so far is over.
        self._rested_seconds = 0.0

    async def run(self, deadline_seconds: float, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns the result of a function, called as one part. Canceling the call drops a part that has not started.

        Raises DeadlineExceededError if the part does not end before the deadline on the clock of `time.monotonic`.
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
            self._rested_seconds = max(self._rested_seconds, started_seconds) + self.periods * taken_seconds


LARGE_WORK = LargeWorkThread()
# Runs one part in the thread of the process.
run_part = LARGE_WORK.run


class Pace:
    """Lets the event loop run about once per `STRETCH_SECONDS` of a loop that calls `keep` between its steps."""

    def __init__(self) -> None:
        self._resumed_seconds = time.monotonic()

    async def keep(self) -> None:
        """Lets the event loop run if the last time was long ago."""
        if time.monotonic() - self._resumed_seconds > STRETCH_SECONDS:
            await asyncio.sleep(0)
            self._resumed_seconds = time.monotonic()


async def spread(
    work: Callable[[Sequence[Item]], Iterable[Result]],
    items: Sequence[Item],
    deadline_seconds: float,
    *,
    large: bool,
    characters: Callable[[Item], int] | None = None,
) -> list[Result]:
    """Returns what `work` makes of some items after another, in their order; the first error ends it.

    Small work runs in the event loop, which handles other requests in between, large work in the thread.

    Args:
        work: thread-safe, except that it never runs twice at once for one request.
        deadline_seconds: on the clock of `time.monotonic`.
        characters: returns the size of an item, by which items share a part; None: each item is a part.

    Raises DeadlineExceededError if a part in the thread does not end before the deadline.
    """
    if not large and len(items) == 1:  # most requests
        return list(work(items))
    results, pace = list[Result](), Pace()
    for part in split_parts(items, PART_CHARACTERS if large else STRETCH_CHARACTERS, characters):
        if large:
            results += await run_part(deadline_seconds, _list, work, part)
        else:
            results += work(part)
            await pace.keep()
    return results


def _list(work: Callable[[Sequence[Item]], Iterable[Result]], part: Sequence[Item]) -> list[Result]:
    return list(work(part))


def split_parts(
    items: Sequence[Item], max_characters: int, characters: Callable[[Item], int] | None
) -> Iterator[Sequence[Item]]:
    """Yields the items in groups of at most `max_characters`, or of a single item; without `characters` one by one."""
    if characters is None:
        yield from ([item] for item in items)
        return
    start = total = 0
    for end, item in enumerate(items):
        size = characters(item)
        if end > start and total + size > max_characters:
            yield items[start:end]
            start, total = end, 0
        total += size
    if items:
        yield items[start:]


def work_bytes(texts: Collection[str]) -> int:
    """Returns the sum of `normalized_bytes` of the texts; of many characters their number, a sum that is quicker."""
    characters = sum(map(len, texts))
    known = characters > SMALL_TEXT_BYTES or all(map(str.isascii, texts))
    return characters if known else sum(map(normalized_bytes, texts))


def normalized_bytes(text: str) -> int:
    """Returns an upper bound of the UTF-8 bytes of a text after NFKC, to which tokenizers normalize."""
    if text.isascii():
        return len(text)
    size = len(text.encode())
    return size if unicodedata.is_normalized("NFKC", text) else MAX_EXPANSION * size
