"""Marks of placeholders and of formatting in the blocks of a document.

A placeholder becomes kept text: the model reads it, and the original replaces its copy in the translation. Characters
that a model does not know become points: the model does not read them.
"""

import re
from bisect import bisect_right
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import itemgetter

from dragoman.serve.protect.markup.blocks import Block, Mark, MarkKind
from dragoman.serve.protect.markup.sentences import Marking
from dragoman.serve.protect.placeholders.icu import find_quotes, find_texts
from dragoman.serve.protect.placeholders.patterns import Finder

# Emoji with their modifiers and joiners, and marks of text direction.
_EMOJI = "\u203c\u2049\u2139\u2194-\u21aa\u231a-\u23ff\u24c2\u25aa-\u27bf\u2b05-\u2b55\U0001f000-\U0001faff"
_JOINED = "\u200d\ufe0e\ufe0f\u20e3\U000e0020-\U000e007f"
_UNREAD = re.compile(rf"[{_EMOJI}][{_EMOJI}{_JOINED}]*+|[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069]")
_NO_BREAK_SPACE = re.compile("[\u00a0\u202f]")


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the plain text: its characters there and in the document."""

    text_start: int
    text_end: int
    start: int
    end: int

    @property
    def same(self) -> bool:
        """Whether the characters are the same on both sides."""
        return self.end - self.start == self.text_end - self.text_start

    def without(self, cuts: Sequence[tuple[int, int]], first: int) -> Iterator["_Piece"]:
        """Yields what remains of the piece without parts of the plain text, of which the first may overlap it."""
        text_start = self.text_start
        for start, end in cuts[first:]:
            if start >= self.text_end or not self.same:
                break
            yield from self._part(text_start, start)
            text_start = end
        if self.same:
            yield from self._part(text_start, self.text_end)
        elif first == len(cuts) or cuts[first][0] >= self.text_end:
            yield self

    def _part(self, text_start: int, text_end: int) -> Iterator["_Piece"]:
        shift = self.start - self.text_start
        if text_start < text_end:
            yield _Piece(text_start, text_end, text_start + shift, text_end + shift)


class Marker(Marking):
    """Adds placeholders and formatting to blocks."""

    def __init__(self, finder: Finder, *, formatting: bool, branching: bool = False) -> None:
        """Stores what to mark: `formatting` such as emoji and no-break spaces, `branching` messages of ICU."""
        self._finder = finder
        self._branching = branching
        self._formatting = formatting

    def parts(self, text: str) -> Sequence[tuple[int, int]]:
        """Returns the parts of a plain text that are translated: not the syntax of branches."""
        return find_texts(text) if self._branching else super().parts(text)

    def mark(self, block: Block, opaque: Container[int]) -> Block:
        """Returns the block with marks of its own; `opaque`: placeholders that are points, by their elements."""
        marks, cuts = list[Mark](), list[tuple[int, int]]()
        position = 0
        for kind, start, end in sorted(self._find(block), key=itemgetter(1, 2)):
            if start < position or _crosses(block, start, end):
                continue
            position = end
            if kind is None:
                cuts.append((start + 1, end))
                continue
            source = block.source(start, end)
            # No element of a document has a number below -1.
            element = -2 - source[0]
            if kind is MarkKind.KEPT and element not in opaque:
                marks.append(Mark(kind, *source, start, end, element))
                if len(marks) > 1 and _touch(block, *marks[-2:]):
                    first, last = marks[-2:]
                    marks[-2:] = [replace(first, end=last.end, text_end=end)]
            elif kind is MarkKind.SPACE:
                marks.append(Mark(kind, *source, start, start))
            else:
                marks.append(Mark(MarkKind.POINT, *source, start, start))
                cuts.append(_with_space(block.text, start, end))
        return _changed(block, marks, cuts) if marks or cuts else block

    def _find(self, block: Block) -> Iterator[tuple[MarkKind | None, int, int]]:
        """Yields what the text has to keep, and its characters; None stands for two apostrophes that mean one.

        A model does not read the number of a message, `#`, as one; unless it is all of an element, it is a point.
        """
        text, tagged = block.text, {mark.text_start for mark in block.marks}
        parts = self.parts(text)
        for quoted, start, end in find_quotes(text) if self._branching else ():
            yield MarkKind.KEPT if quoted else None, start, end
        for placeholder in self._finder.find(text):
            part = bisect_right(parts, placeholder.start, key=itemgetter(0)) - 1
            if part >= 0 and placeholder.end <= parts[part][1]:  # syntax of branches stays without marks
                is_number = (
                    self._branching
                    and text[placeholder.start] == "#"
                    and not tagged.intersection((placeholder.start, placeholder.end))
                )
                yield MarkKind.POINT if is_number else MarkKind.KEPT, placeholder.start, placeholder.end
        if self._formatting:
            for kind, expression in ((MarkKind.POINT, _UNREAD), (MarkKind.SPACE, _NO_BREAK_SPACE)):
                for match in expression.finditer(text):
                    yield kind, *match.span()


def _touch(block: Block, first: Mark, last: Mark) -> bool:
    """Returns whether two placeholders, no tags, have nothing between them: they stay together."""
    return (
        first.kind is MarkKind.KEPT
        and (first.end, first.text_end) == (last.start, last.text_start)
        and "<" not in (block.text[first.text_start], block.text[last.text_start])
        and not _crosses(block, first.text_start, last.text_end)
    )


def _crosses(block: Block, start: int, end: int) -> bool:
    """Returns whether a mark lies inside of a part of the plain text, or kept text overlaps it."""
    following = bisect_right(block.marks, start, key=lambda mark: mark.text_start)
    kept = bisect_right(block.kept, start, key=lambda mark: mark.text_start) - 1
    inside = following < len(block.marks) and block.marks[following].text_start < end
    return inside or (kept >= 0 and start < block.kept[kept].text_end)


def _with_space(text: str, start: int, end: int) -> tuple[int, int]:
    """Returns a part of a text with one of two spaces around it."""
    if text[end : end + 1] == " " and (start == 0 or text[start - 1] == " "):
        return start, end + 1
    if text[start - 1 : start] == " " and end == len(text):
        return start - 1, end
    return start, end


def _changed(block: Block, added: Sequence[Mark], cuts: Sequence[tuple[int, int]]) -> Block:
    """Returns the block with more marks and without parts of its text, which are in order."""
    ends = [end for _, end in cuts]
    lengths = [0, *accumulate(end - start for start, end in cuts)]

    def moved(offset: int) -> int:
        index = bisect_right(ends, offset)
        inside = max(0, offset - cuts[index][0]) if index < len(cuts) else 0
        return offset - lengths[index] - inside

    pieces = list[_Piece]()
    edges = [*(text_start for text_start, _, _ in block.pieces), len(block.text)]
    for (text_start, start, end), following in zip(block.pieces, edges[1:], strict=True):
        pieces += _Piece(text_start, following, start, end).without(cuts, bisect_right(ends, text_start))
    marks = sorted((*block.marks, *added), key=lambda mark: mark.start)
    marks = [replace(mark, text_start=moved(mark.text_start), text_end=moved(mark.text_end)) for mark in marks]
    return Block(
        "".join(block.text[piece.text_start : piece.text_end] for piece in pieces),
        tuple(marks),
        tuple((moved(piece.text_start), piece.start, piece.end) for piece in pieces),
        tuple(mark for mark in marks if mark.kind is MarkKind.KEPT),
    )
