"""Translates the segments of a document.

A server refuses very long texts. Long segments without tags are therefore translated in parts of whole sentences.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain

from serve.documents.document import Segment

# Of a part of a segment. A sentence is cut only if it is longer.
PART_CHARACTERS = 1000
PART_SENTENCES = 10
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[\u3002\uff01\uff1f])\s*")
_WORD_END = re.compile(rf"\S.{{0,{PART_CHARACTERS - 2}}}(?<=\S)(?=\s|\Z)|\S.{{0,{PART_CHARACTERS - 2}}}", re.DOTALL)


async def translate_segments(
    segments: Sequence[Segment],
    translate: Callable[[Segment], Awaitable[str]],
    in_flight: int,
    report: Callable[[], object],
) -> list[str]:
    """Returns one translation per segment, in their order; the first failure ends all calls.

    Args:
        segments: different ones of a document.
        translate: translates one segment, or a part of one.
        in_flight: number of segments that are translated at once.
        report: called after each translation.
    """
    found = [""] * len(segments)
    waiting = enumerate(segments)

    async def work() -> None:
        for number, segment in waiting:
            found[number] = await _translate(segment, translate)
            report()
            # A translation that is known already waits for nothing.
            await asyncio.sleep(0)

    workers = [asyncio.create_task(work()) for _ in range(in_flight)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return found


async def _translate(segment: Segment, translate: Callable[[Segment], Awaitable[str]]) -> str:
    if segment.format != "text" or len(segment.text) <= PART_CHARACTERS:
        return await translate(segment)
    translations = list[str]()
    for part, is_text in split_text(segment.text):
        translations.append(await translate(Segment(part)) if is_text else part)
        await asyncio.sleep(0)
    return "".join(translations)


def split_text(text: str) -> Iterator[tuple[str, bool]]:
    """Yields the parts of a long text, and the white space between them; with each, whether it is a part."""
    start = end = sentences = 0
    for first, last in _sentences(text):
        if start < end and (last - start > PART_CHARACTERS or sentences >= PART_SENTENCES):
            yield text[start:end], True
            yield text[end:first], False
            start, sentences = first, 0
        end, sentences = last, sentences + 1
    yield text[start:end], True
    yield text[end:], False


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yields the characters of each sentence, and of the pieces of those that are too long."""
    ends = (found.span() for found in _SENTENCE_END.finditer(text))
    first = 0
    for last, following in chain(ends, ((len(text), len(text)),)):
        if last - first <= PART_CHARACTERS:
            yield first, last
        else:
            yield from (found.span() for found in _WORD_END.finditer(text, first, last))
        first = following
