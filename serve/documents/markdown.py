"""Markdown (CommonMark with tables): each paragraph, heading, item and cell is a segment.

Code, front matter and definitions of references stay. A paragraph of several lines becomes one line.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import partial

from markdown_it import MarkdownIt
from markdown_it.token import Token

from serve.documents.document import Document, DocumentRequest
from serve.documents.html import html_parts
from serve.documents.inline import Inline
from serve.documents.markdown_inline import InlineReader, write_block, write_text
from serve.documents.splice import Part, Span, SplicedDocument, decode

_FRONT_MATTER = re.compile(r"\ufeff?---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_HARD_BREAKS = ("  ", "\\")


def parse_markdown(content: bytes, _request: DocumentRequest) -> Document:
    """Parses a Markdown file."""
    text, encode = decode(content)
    return SplicedDocument(text, list(_parts(text)), encode)


def _parts(text: str) -> Iterator[Part]:
    body = _hide_front_matter(text).replace("\r\n", " \n").replace("\r", "\n").replace("\ufeff", " ").replace("\0", " ")
    environment = dict[str, dict[str, object]]()
    lines = _Lines(body)
    tokens = MarkdownIt("commonmark").enable(["table"]).disable("inline").parse(body, environment)
    labels = environment.get("references", {}).keys()
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.map is None:
            continue
        if token.type == "html_block" and token.level == 0:
            first, last = lines.place(token.map[0]), lines.place(token.map[1])
            yield from html_parts(text[first:last], first)
        elif token.type == "inline" and before is not None:
            in_cell = before.type in ("td_open", "th_open")
            for spans in lines.find(token, before):
                yield from _text_part(text, spans, labels, in_cell=in_cell)


def _hide_front_matter(text: str) -> str:
    front = _FRONT_MATTER.match(text)
    return text if front is None else re.sub(r"[^\r\n]", " ", front[0]) + text[front.end() :]


def _text_part(text: str, spans: Sequence[Span], labels: Collection[str], *, in_cell: bool) -> Iterator[Part]:
    raw = "\n".join(text[start:end] for start, end in spans)
    inline = Inline.of(InlineReader(raw, labels).read())
    if inline.is_translatable:
        yield Part(
            inline.segment,
            [(spans[0][0], spans[-1][1])],
            lambda translation: (write_block(inline.render(translation, partial(write_text, in_cell=in_cell))),),
        )


class _Lines:
    """The lines of a document, to find the text of tokens in them."""

    def __init__(self, body: str) -> None:
        self._lines = body.split("\n")
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line) + 1)
        self._length = len(body)
        # Where the last cell of the table row that is being read ends.
        self._row = (-1, 0)

    def place(self, line: int) -> int:
        """Returns where a line starts."""
        return min(self._starts[line], self._length)

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
            spans.append(span)
            last = number == len(contents) - 1
            if last or self._lines[first + number].rstrip("\r").endswith(_HARD_BREAKS):
                yield spans
                spans = []

    def _find_line(self, number: int, content: str, markup: str) -> Span | None:
        bare, line = content.strip(), self._lines[number]
        heading = markup.startswith("#")
        place = line.find(bare, line.index("#") + len(markup)) if heading else line.rstrip().rfind(bare)
        if place < 0:
            return None
        start = self._starts[number] + place
        return start, start + len(bare)

    def _find_cell(self, number: int, content: str) -> Iterator[list[Span]]:
        position = self._row[1] if self._row[0] == number else 0
        pattern = re.escape(content).replace(r"\|", r"\\?\|")
        found = re.compile(pattern).search(self._lines[number], position)
        if found and content:
            self._row = number, found.end()
            start = self._starts[number]
            yield [(start + found.start(), start + found.end())]
