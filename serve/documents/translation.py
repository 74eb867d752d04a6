"""Translates the segments of a document.

A server refuses very long texts. Long segments are therefore translated in parts of whole sentences. Both tags of an
element are in one part. If the element is too long, its tags are in no part, and its content is divided.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain

from dragoman.serve.documents.document import Document, Segment, is_translatable
from dragoman.serve.translation.divided import divide_window

# The size of a part of a segment. A sentence is cut only if it is longer.
PART_CHARACTERS = 1000
PART_SENTENCES = 10
# One search for the end of a sentence holds the event loop: it reads at most this many characters.
SEARCH_CHARACTERS = 64 * PART_CHARACTERS
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[\u3002\uff01\uff1f])\s*")
_BLANKS = re.compile(r"\s*")
_START = rf"[^\s\0].{{0,{PART_CHARACTERS - 2}}}"
_WORD_END = re.compile(rf"{_START}(?<=\S)(?=\s|\Z)|{_START}(?!\0)", re.DOTALL)
_TAG = re.compile(r"(?P<OPEN><g [^<>]*>)|(?P<CLOSE></g>)|<[bx] [^<>]*>|<k [^<>]*>[^<]*</k>")


# Translates parts of one format together.
TranslateParts = Callable[[Sequence[Segment]], Awaitable[Sequence[str]]]


async def translate_segments(
    segments: Sequence[Segment], translate: TranslateParts, in_flight: int, report: Callable[[], object]
) -> list[str]:
    """Returns one translation per segment, in their order; the first failure ends all calls.

    Args:
        segments: different ones of a document.
        translate: returns one translation per segment, or part of one.
        in_flight: number of parts that are translated at once.
        report: called after the translation of each part, as `count_parts` counts them.
    """
    found = [list[str]() for _ in segments]
    requests, size = divide_window(in_flight)
    waiting = _requests(segments, found, size)

    async def work() -> None:
        for request in waiting:
            translations = await translate([part for _, _, part in request])
            for (pieces, place, _), translation in zip(request, translations, strict=True):
                pieces[place] = translation
                report()
            # A translation that is known already waits for nothing.
            await asyncio.sleep(0)

    workers = [asyncio.create_task(work()) for _ in range(requests)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return list(map("".join, found))


def _requests(
    segments: Sequence[Segment], found: Sequence[list[str]], size: int
) -> Iterator[list[tuple[list[str], int, Segment]]]:
    """Yields parts of one format, up to `size`, each with its place; writes the texts that stay to `found`."""
    waiting = defaultdict[str, list[tuple[list[str], int, Segment]]](list)
    for segment, pieces in zip(segments, found, strict=True):
        for part in _parts(segment):
            if not isinstance(part, Segment):
                pieces.append(part)
                continue
            request = waiting[part.format]
            request.append((pieces, len(pieces), part))
            pieces.append("")
            if len(request) == size:
                yield waiting.pop(part.format)
    yield from waiting.values()


def count_parts(segment: Segment) -> int:
    """Returns the number of parts in which a segment is translated."""
    return sum(isinstance(part, Segment) for part in _parts(segment))


def _parts(segment: Segment) -> Iterator[Segment | str]:
    """Yields the parts of a segment to translate, and the texts between them that stay."""
    if len(segment.text) <= PART_CHARACTERS:
        yield segment
        return
    for text, is_text in split_text(segment.text) if segment.format == "text" else _split_markup(segment.text):
        part = Segment(text, segment.format)
        yield part if is_text and is_translatable(part.visible) else text


def _split_markup(text: str) -> Iterator[tuple[str, bool]]:
    """Yields the parts of a long text with tags, and what is between them; with each, whether it is a part."""
    position = 0
    for start, end in _tags_of_long_elements(text):
        yield from split_text(text[position:start], _hide_tags(text[position:start]))
        yield text[start:end], False
        position = end
    yield from split_text(text[position:], _hide_tags(text[position:]))


def _tags_of_long_elements(text: str) -> list[tuple[int, int]]:
    """Returns the characters of the tags around more text than a part has, in their order."""
    found, opened = list[tuple[int, int]](), list[tuple[int, int]]()
    for tag in _TAG.finditer(text):
        if tag["OPEN"]:
            opened.append(tag.span())
        elif tag["CLOSE"] and tag.end() - opened[-1][0] < PART_CHARACTERS:
            opened.pop()
        elif tag["CLOSE"]:
            found += (opened.pop(), tag.span())
    return sorted(found)


def _hide_tags(text: str) -> str:
    """Returns a text as long with a letter and null characters, where no part ends, in place of each element."""
    pieces, levels, position = list[str](), 0, 0
    for tag in _TAG.finditer(text):
        if levels == 0:
            pieces.append(text[position : tag.start()])
            position = tag.start()
        levels += bool(tag["OPEN"]) - bool(tag["CLOSE"])
        if levels == 0:
            pieces.append("x".ljust(tag.end() - position, "\0"))
            position = tag.end()
    return "".join((*pieces, text[position:]))


def split_text(text: str, hidden: str = "") -> Iterator[tuple[str, bool]]:
    """Yields the parts of a long text, and the white space between them; with each, whether it is a part.

    Args:
        text: without tags around several parts.
        hidden: the text with its tags hidden; empty: it has none.
    """
    start = end = sentences = 0
    for first, last in _sentences(hidden or text):
        if start < end and (last - start > PART_CHARACTERS or sentences >= PART_SENTENCES):
            yield text[start:end], True
            yield text[end:first], False
            start, sentences = first, 0
        end, sentences = last, sentences + 1
    yield text[start:end], True
    yield text[end:], False


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yields the characters of each sentence, and of the pieces of those that are too long."""
    first = 0
    for last, following in chain(_sentence_ends(text), ((len(text), len(text)),)):
        if last - first <= PART_CHARACTERS:
            yield first, last
        else:
            yield from (match.span() for match in _WORD_END.finditer(text, first, last))
        first = following


def _sentence_ends(text: str) -> Iterator[tuple[int, int]]:
    """Yields the white space after each sentence, and where a sentence as long as a search is cut."""
    start = 0
    while start + SEARCH_CHARACTERS < len(text):
        end = start + SEARCH_CHARACTERS
        spans = [span for span in _end_spans(text, start, end) if span[1] < end] or [_cut(text, start, end)]
        yield from spans
        start = spans[-1][1]
    yield from _end_spans(text, start, len(text))


def _end_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    return (match.span() for match in _SENTENCE_END.finditer(text, start, end))


def _cut(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns the white space at which a sentence is cut, or the first character after a hidden element."""
    blank = text.rfind(" ", start + 1, end)
    if blank > 0:
        return blank, _BLANKS.match(text, blank).end()  # type: ignore[union-attr] # it matches the blank
    while text[end : end + 1] == "\0":
        end += 1
    return end, end


class DistinctSegments:
    """The different segments of a document. Many take long.

    Attributes:
        segments: in the order of their first occurrences.
        parts: number of the parts in which the segments are translated.
        characters: of all segments of the document.
    """

    def __init__(self, document: Document) -> None:
        numbers = dict[Segment, int]()
        of_document = document.segments
        self._document = document
        self._numbers = [numbers.setdefault(item, len(numbers)) for item in of_document]
        self.segments = list(numbers)
        self.parts = sum(map(count_parts, self.segments))
        self.characters = sum(len(item.visible) for item in of_document)

    def write(self, translations: Sequence[str]) -> bytes:
        """Returns the translated document; raises DocumentError if its encoding lacks a character."""
        return self._document.write([translations[number] for number in self._numbers])
