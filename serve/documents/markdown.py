"""Markdown (CommonMark with tables, footnotes and definitions): each paragraph, heading, item and cell is a segment.

Code, formulas, front matter and definitions of references stay. A paragraph of several lines becomes one line.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

from markdown_it import MarkdownIt
from markdown_it.token import Token

from dragoman.serve.documents.document import Document, DocumentRequest
from dragoman.serve.documents.html import html_parts, ignored_tags
from dragoman.serve.documents.inline import Inline
from dragoman.serve.documents.markdown_blocks import add_blocks
from dragoman.serve.documents.markdown_inline import EMPHASIS, InlineReader, InlineSyntax, write_block, write_text
from dragoman.serve.documents.splice import Part, Span, SplicedDocument, decode

_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_LINE_END = re.compile(r"\r\n|\r|\n")
# What a part of a document is, and its lines.
_Found = tuple[Literal["text", "cell", "html"], tuple[Span, ...]]


def parse_markdown(content: bytes, request: DocumentRequest) -> Document:
    """Parses a Markdown file."""
    text, encode = decode(content)
    return SplicedDocument(text, markdown_parts(text, ignored_tags(request)), encode, request)


def markdown_parts(text: str, ignore_tags: frozenset[str]) -> Iterator[Part]:
    """Yields the parts of a Markdown text."""
    front = _FRONT_MATTER.match(text)
    hidden = text if front is None else re.sub(r"[^\r\n]", " ", front[0]) + text[front.end() :]
    lines = _Lines(hidden.replace("\ufeff", " ").replace("\0", " "))
    environment = dict[str, dict[str, object]]()
    blocks = _Blocks(lines)
    parser = MarkdownIt("commonmark").enable(["table"])
    add_blocks(parser)
    parser.block.parse(lines.joined(), parser, environment, blocks)
    syntax = InlineSyntax(environment.get("references", {}).keys(), ignore_tags)
    found = blocks.find()
    found.reverse()
    # Each is freed on its own: to free many at once would hold up other threads.
    while found:
        kind, spans = found.pop()
        if kind == "html":
            ((first, last),) = spans
            yield from html_parts(text[first:last], ignore_tags, first)
        else:
            yield from _text_part(text, spans, syntax, in_cell=kind == "cell")


def _text_part(text: str, spans: Sequence[Span], syntax: InlineSyntax, *, in_cell: bool) -> Iterator[Part]:
    raw = "\n".join(text[start:end] for start, end in spans)
    inline = Inline.of(InlineReader(raw, syntax).read())
    if inline.is_translatable:
        writer = _writer(inline, raw, syntax, in_cell=in_cell)
        yield Part(inline.segment, ((spans[0][0], spans[-1][1]),), writer)


def _writer(inline: Inline, raw: str, syntax: InlineSyntax, *, in_cell: bool) -> Callable[[str], tuple[str, ...]]:
    """Returns a function that takes little memory: most texts share one, and the others are read again."""
    if inline.is_plain and not (inline.before or inline.after):
        return _PLAIN[in_cell]
    return partial(_write_inline, raw=raw, syntax=syntax, in_cell=in_cell)


def _write_plain(translation: str, *, in_cell: bool) -> tuple[str]:
    return (write_block(write_text(translation, in_cell=in_cell)),)


# One function for each kind of most texts, since each function takes memory.
_PLAIN = {in_cell: partial(_write_plain, in_cell=in_cell) for in_cell in (False, True)}


def _write_inline(translation: str, *, raw: str, syntax: InlineSyntax, in_cell: bool) -> tuple[str]:
    inline = Inline.of(InlineReader(raw, syntax).read())
    return (write_block(inline.render(translation, partial(write_text, in_cell=in_cell), EMPHASIS)),)


class _Blocks(list[Token]):
    """Takes the tokens of the parser, and stores where their texts are.

    The tokens of a long document would take much memory, and the time of garbage collections that stop all threads.
    """

    def __init__(self, lines: "_Lines") -> None:
        super().__init__()
        self._lines = lines
        self._found = list[_Found]()
        # The last token is incomplete until the next one.
        self._before: Token | None = None
        self._last: Token | None = None

    def append(self, token: Token, /) -> None:
        """Takes the next token."""
        self._found += self._read()
        self._before, self._last = self._last, token

    def find(self) -> list[_Found]:
        """Returns the parts of the document, after its last token."""
        self._found += self._read()
        return self._found

    def _read(self) -> Iterator[_Found]:
        token, before = self._last, self._before
        if token is None or token.map is None:
            return
        if token.type == "html_block" and token.level == 0:
            first, last = map(self._lines.start_of, token.map)
            yield "html", ((first, last),)
        elif token.type == "inline" and before is not None:
            for spans in self._lines.find(token, before):
                yield "cell" if before.type in ("td_open", "th_open") else "text", tuple(spans)


class _Lines:
    """The lines of a document, to find the text of tokens in them."""

    def __init__(self, text: str) -> None:
        self._lines = _LINE_END.split(text)
        self._starts = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]
        # Where the last cell of the table row that is being read ends.
        self._row = (-1, 0)

    def joined(self) -> str:
        """Returns the document with line feeds as its line ends."""
        return "\n".join(self._lines)

    def start_of(self, line: int) -> int:
        """Returns where a line starts."""
        return self._starts[line]

    def find(self, token: Token, before: Token) -> Iterator[list[Span]]:
        """Yields the characters of the lines of a token, one list per part between hard line breaks."""
        first = (token.map or [0])[0]
        if before.type in ("td_open", "th_open"):
            yield from self._find_cell(first, token.content)
            return
        spans = list[Span]()
        contents = token.content.split("\n")
        for number, content in enumerate(contents):
            span = self._find_line(first + number, content, before.markup)
            if span is None:
                return
            last, line = number == len(contents) - 1, self._lines[first + number]
            # A line end after an escaped backslash is not escaped.
            escaped = not last and (len(line) - len(line.rstrip("\\"))) % 2 == 1
            spans.append((span[0], span[1] - escaped))
            if last or escaped or line.endswith("  "):
                yield spans
                spans = []

    def _find_line(self, number: int, content: str, markup: str) -> Span | None:
        bare, line = content.strip(), self._lines[number]
        heading = markup.startswith("#")
        offset = line.find(bare, line.index("#") + len(markup)) if heading else line.rstrip().rfind(bare)
        if offset < 0:
            return None
        start = self._starts[number] + offset
        return start, start + len(bare)

    def _find_cell(self, number: int, content: str) -> Iterator[list[Span]]:
        position = self._row[1] if self._row[0] == number else 0
        pattern = re.escape(content).replace(r"\|", r"\\?\|")
        match = re.compile(pattern).search(self._lines[number], position)
        if match and content:
            self._row = number, match.end()
            start = self._starts[number]
            yield [(start + match.start(), start + match.end())]
