"""Translates the segments of a document, each distinct one once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from serve.documents.document import Segment


async def translate_segments(
    segments: Sequence[Segment],
    translate: Callable[[Segment], Awaitable[str]],
    in_flight: int,
    report: Callable[[], object],
) -> list[str]:
    """Returns one translation per segment, in their order; the first failure ends all calls.

    Args:
        segments: of a document.
        translate: translates one segment.
        in_flight: number of segments that are translated at once.
        report: called after each translation of a distinct segment.
    """
    found = dict[Segment, str]()
    waiting = iter(dict.fromkeys(segments))

    async def work() -> None:
        for segment in waiting:
            found[segment] = await translate(segment)
            report()

    workers = [asyncio.create_task(work()) for _ in range(in_flight)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [found[segment] for segment in segments]
