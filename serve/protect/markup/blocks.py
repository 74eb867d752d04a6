"""Blocks: the text between tags that end sentences, as plain text with marks.

The plain text of a block has its character references decoded and its white space collapsed, as browsers show it. A
mark is an inline tag, or something in the text that is not translated.
"""

import re
from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from dragoman.serve.protect.markup.elements import BLOCKS, NONE, UNTRANSLATED, VISIBLE, MarkupOptions, Tree
from dragoman.serve.protect.markup.references import Reference, find_references
from dragoman.serve.protect.markup.tokens import Kind, Token

# White space of HTML and XML; others, such as U+00A0, are characters of the text.
SPACES = "\t\n\f\r "
_LINE_PART = re.compile(r"[^\r\n\t\v\f\x85\u2028\u2029]+")
_RUN = re.compile(rf"[{SPACES}]+|[^{SPACES}]+")


class MarkKind(Enum):
    """Kinds of marks.

    They are the two tags of an element, something without text, text that is not translated, and a space that replaces
    the one at its offset.
    """

    OPEN = auto()
    CLOSE = auto()
    POINT = auto()
    KEPT = auto()
    SPACE = auto()


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark.

    Attributes:
        start, end: its characters in the document.
        text_start, text_end: its characters in the plain text; the same except for KEPT.
        element: of tags and KEPT.
        space: white space inside of a point that the plain text has.
    """

    kind: MarkKind
    start: int
    end: int
    text_start: int
    text_end: int
    element: int = NONE
    space: tuple[int, int] | None = None

    def raw(self, text: str) -> str:
        """Returns the characters of the document without white space that the plain text has."""
        start, end = self.space or (self.end, self.end)
        return text[self.start : start] + text[end : self.end]


@dataclass(frozen=True, slots=True)
class Block:
    """A block with translatable text.

    Attributes:
        marks: in the order of the document.
        pieces: of the plain text: their starts in it, and their characters in the document. A piece of as many
            characters on both sides is the same text.
        kept: the marks of kind KEPT.
    """

    text: str
    marks: tuple[Mark, ...]
    pieces: tuple[tuple[int, int, int], ...]
    kept: tuple[Mark, ...]

    def source(self, start: int, end: int) -> tuple[int, int]:
        """Returns the document's characters of a nonempty part of the text, with the tags of kept text."""
        return self._source(start)[0], self._source(end - 1)[1]

    def _source(self, offset: int) -> tuple[int, int]:
        kept = self._kept_at(offset)
        if kept is not None:
            return kept.start, kept.end
        index = bisect_right(self.pieces, offset, key=lambda piece: piece[0]) - 1
        first, start, end = self.pieces[index]
        following = self.pieces[index + 1][0] if index + 1 < len(self.pieces) else len(self.text)
        if end - start == following - first:
            start += offset - first
            return start, start + 1
        return start, end

    def _kept_at(self, offset: int) -> Mark | None:
        index = bisect_right(self.kept, offset, key=lambda mark: mark.text_start) - 1
        return self.kept[index] if index >= 0 and offset < self.kept[index].text_end else None


def read_lines(text: str, parts: Iterable[tuple[int, int]]) -> Iterator[Block]:
    """Yields the blocks of parts of a plain text: lines, and what is between tabs. Their white space stays."""
    for part in parts:
        for match in _LINE_PART.finditer(text, *part):
            if match[0].strip():
                yield Block(match[0], (), ((0, *match.span()),), ())


class BlockReader:
    """Reads the blocks of a document; `references`: the character references of translated text."""

    def __init__(
        self, text: str, tokens: Sequence[Token], tree: Tree, options: MarkupOptions, opaque: Container[int]
    ) -> None:
        """Starts at the beginning; `opaque` are untranslated elements that are points, also with text for the model."""
        self.references = list[Reference]()
        self._text = text
        self._tokens = tokens
        self._tree = tree
        self._options = options
        self._xml = options.format == "xml"
        self._opaque = opaque
        self._translated = False
        self._start_block()

    def read(self) -> Iterator[Block]:
        """Yields the blocks."""
        index = 0
        while index < len(self._tokens):
            token, owner = self._tokens[index], self._tree.owners[index]
            index += 1
            if self._splits(token, owner):
                yield from self._end_block()
            elif token.kind is Kind.TEXT:
                self._add_text(token.start, token.end)
                self._translated = self._translated or bool(self._text[token.start : token.end].strip(SPACES))
            elif token.kind is Kind.START and not self._tree.elements[owner].translated:
                index = self._add_untranslated(owner)
            else:
                self._add_tag(token, owner)
        yield from self._end_block()

    def _start_block(self) -> None:
        self._parts = list[str]()
        self._length = 0
        self._pieces = list[tuple[int, int, int]]()
        self._marks = list[Mark]()
        # Index of the mark that opens an element.
        self._open = dict[int, int]()
        self._translated = False

    def _end_block(self) -> Iterator[Block]:
        if self._translated:
            kept = tuple(mark for mark in self._marks if mark.kind is MarkKind.KEPT)
            yield Block("".join(self._parts), tuple(self._marks), tuple(self._pieces), kept)
        self._start_block()

    def _splits(self, token: Token, owner: int) -> bool:
        """Returns whether a token ends the block: a block tag, or what is inside of an untranslated block."""
        elements = self._tree.elements
        if owner == NONE:
            return self._is_block(token.name)
        element = elements[owner]
        if token.kind in (Kind.TEXT, Kind.OTHER):
            return not element.translated
        return element.block or not (element.translated or elements[element.parent].translated)

    def _is_block(self, name: str) -> bool:
        """Returns whether an end tag without an element ends a block."""
        options = self._options
        block = name in options.splitting_tags or (not self._xml and name in BLOCKS)
        return block and name not in options.non_splitting_tags

    def _add_text(self, start: int, end: int) -> None:
        position = start
        for reference in find_references(self._text, start, end, xml=self._xml):
            self.references.append(reference)
            self._add_literal(position, reference.start)
            if reference.value is None:
                self._add_mark(MarkKind.POINT, reference.start, reference.end)
            elif reference.value in SPACES:
                self._add_space(reference.start, reference.end)
            else:
                self._add_piece(reference.value, reference.start, reference.end)
            position = reference.end
        self._add_literal(position, end)

    def _add_literal(self, start: int, end: int) -> None:
        for run in _RUN.finditer(self._text, start, end):
            if run[0][0] in SPACES:
                self._add_space(*run.span())
            else:
                self._add_piece(run[0], *run.span())

    def _add_space(self, start: int, end: int) -> None:
        if self._parts and self._parts[-1] != " ":
            self._add_piece(" ", start, end)

    def _add_piece(self, text: str, start: int, end: int) -> None:
        self._pieces.append((self._length, start, end))
        self._parts.append(text)
        self._length += len(text)

    def _add_mark(self, kind: MarkKind, start: int, end: int, element: int = NONE) -> None:
        self._marks.append(Mark(kind, start, end, self._length, self._length, element))

    def _add_tag(self, token: Token, owner: int) -> None:
        element = None if owner == NONE else self._tree.elements[owner]
        if element is None or not element.closed or token.kind is Kind.OTHER:
            self._add_point(token.name, token.start, token.end)
        elif token.kind is Kind.START:
            self._open[owner] = len(self._marks)
            self._add_mark(MarkKind.OPEN, token.start, token.end, owner)
        elif not self._close_empty(token, owner):
            self._add_mark(MarkKind.CLOSE, token.start, token.end, owner)

    def _close_empty(self, token: Token, owner: int) -> bool:
        """Turns an element without visible text into a point; returns whether it is one."""
        first = self._open.get(owner)
        if first is None:
            return False
        mark = self._marks[first]
        if any(part != " " for part in self._parts[self._index(mark.text_start) :]):
            return False
        del self._marks[first:]
        space = next((piece[1:] for piece in self._pieces[self._index(mark.text_start) :]), None)
        self._marks.append(Mark(MarkKind.POINT, mark.start, token.end, mark.text_start, mark.text_start, space=space))
        return True

    def _index(self, offset: int) -> int:
        """Returns the index of the first part that begins at an offset or later."""
        return bisect_right(self._pieces, offset - 1, key=lambda piece: piece[0])

    def _add_point(self, name: str, start: int, end: int) -> None:
        self._add_mark(MarkKind.POINT, start, end)
        if not self._xml and name in VISIBLE:
            self._add_space(start, start)

    def _add_untranslated(self, owner: int) -> int:
        """Adds an element whose content is not translated; returns the index of the token after it."""
        element = self._tree.elements[owner]
        following = element.end + element.closed
        start, end = self._tokens[element.start].start, self._tokens[following - 1].end
        if owner in self._opaque or (not self._xml and element.name in UNTRANSLATED):
            self._add_point(element.name, start, end)
            return following
        before, marks = self._length, len(self._marks)
        for token in self._tokens[element.start : following]:
            if token.kind is Kind.TEXT:
                self._add_text(token.start, token.end)
        del self._marks[marks:]
        self._add_kept(owner, start, end, before)
        return following

    def _add_kept(self, owner: int, start: int, end: int, before: int) -> None:
        """Marks the text that was added since an offset as text to keep."""
        text = "".join(self._parts[self._index(before) :])
        if not text.strip():
            self._add_mark(MarkKind.POINT, start, end)
            return
        offset = before + len(text) - len(text.lstrip())
        self._marks.append(Mark(MarkKind.KEPT, start, end, offset, offset + len(text.strip()), owner))
