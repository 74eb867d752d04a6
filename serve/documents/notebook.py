"""Jupyter notebooks (`.ipynb`): the Markdown cells are translated; code, outputs and metadata stay."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from json.decoder import scanstring  # type: ignore[attr-defined]

from dragoman.serve.documents.document import Document, DocumentRequest, Segment
from dragoman.serve.documents.html import ignored_tags
from dragoman.serve.documents.json import COLON, HALF, TOKEN, read_json
from dragoman.serve.documents.markdown import markdown_parts
from dragoman.serve.documents.splice import Edit, Parts, Span, apply_edits, splice

# A value of a cell is inside of the notebook, its list of cells and the cell; a line of it, also inside of a list.
_CELL, _LINES = "{[{", "{[{["


@dataclass(slots=True)
class _Cell:
    """A cell that is being read: its type, and the quoted lines of its source."""

    kind: str = ""
    lines: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)


class Notebook:
    """A notebook with the parts of its Markdown cells."""

    def __init__(self, text: str, encode: Callable[[str], bytes], request: DocumentRequest) -> None:
        """Reads the cells; raises DocumentError if they have more texts than the request allows."""
        self._text = text
        self._encode = encode
        self._cells = list[tuple[_Cell, Parts]]()
        self.segments = list[Segment]()
        for cell in _cells(text):
            parts = Parts(markdown_parts("".join(cell.lines), ignored_tags(request)), request, len(self.segments))
            self._cells.append((cell, parts))
            self.segments += parts.segments

    def write(self, translations: Sequence[str]) -> bytes:
        """Returns the translated notebook; raises DocumentError if a cell is too long."""
        left = iter(translations)
        edits = (
            edit
            for cell, parts in self._cells
            for edit in self._edits(cell, splice("".join(cell.lines), parts, list(islice(left, len(parts.segments)))))
        )
        return self._encode(apply_edits(self._text, edits))

    def _edits(self, cell: _Cell, written: str) -> Iterator[Edit]:
        """Yields the edit of a cell; it has no more lines than before."""
        if written == "".join(cell.lines):
            return
        start, end = cell.spans[0][0], cell.spans[-1][1]
        raw = self._text[start:end]
        lines, between = [written], ""
        if len(cell.spans) > 1:
            lines = written.splitlines(keepends=True)
            between = self._text[cell.spans[0][1] : cell.spans[1][0]]
        as_ascii = raw.isascii() and "\\u" in raw
        yield (start, end), between.join(json.dumps(line, ensure_ascii=as_ascii) for line in lines)


def parse_notebook(content: bytes, request: DocumentRequest) -> Document:
    """Parses a notebook."""
    return Notebook(*read_json(content), request)


def _cells(text: str) -> Iterator[_Cell]:
    """Yields the Markdown cells of valid JSON."""
    levels, names, cell, position = "", [""], _Cell(), 0
    while match := TOKEN.match(text, position):
        mark, position = match["MARK"], match.end()
        if mark == '"':
            start = match.start("MARK")
            value, position = scanstring(text, position, True)
            if COLON.match(text, position):
                names[-1] = value
            elif levels == _CELL and names[1:] == ["cells", "", "cell_type"]:
                cell.kind = value
            elif levels in (_CELL, _LINES) and names[1:4] == ["cells", "", "source"]:
                cell.lines.append(value)
                cell.spans.append((start, position))
        elif mark in "{[":
            levels += mark
            names.append("")
            if levels == _CELL:
                cell = _Cell()
        elif mark in "}]":
            if levels == _CELL and cell.kind == "markdown" and cell.lines and not HALF.search("".join(cell.lines)):
                yield cell
            levels = levels[:-1]
            names.pop()
