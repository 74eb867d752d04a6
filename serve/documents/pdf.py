"""PDF (`.pdf`): the text layer becomes Markdown, which is translated: paragraphs, headings, items, code and tables."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, pairwise
from statistics import median
from typing import Literal
from unicodedata import east_asian_width

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.markdown import parse_markdown
from dragoman.serve.documents.markdown_inline import write_block, write_text
from dragoman.serve.documents.pdf_lines import Line, Word, read_lines, read_pages

_BULLETS = "\u2022\u2023\u2043\u25aa\u25ab\u25cf\u25cb\u25a0\u25a1\u25e6\u2219\u00b7\u2756\u2713\uf0b7\uf0a7\uf0d8"
# These are also other characters, so that they begin an item only where a block begins or after another item.
_MARK = re.compile(r"[-\u2013*]|\(?(\d{1,3})[.)]")
_LEADERS = re.compile(r"(?<![\s.\u00b7\u2026])(?:\s*+[.\u00b7\u2026]){4,}+\s*+\w{0,5}$")
_ENDS = (*".:!?", "\u2026", "\u3002", "\uff1a", "\uff01", "\uff1f")
_PUNCTUATION = ".,;:!?()[]\"'\u201c\u201d\u2018\u2019"
_MAX_LEVEL, _MAX_EMPTY_LINES, _MAX_BLANKS = 6, 2, 80
# By the size of the text: headings, indentations of paragraphs. By the usual distance of lines: that of paragraphs.
_HEADING, _INDENT, _SPACED = 1.09, 0.8, 1.3
# By the width of the text: a full line ends behind the first place, and a line before the second ends its paragraph.
_FULL, _SHORT = 0.8, 0.6
# Lines at either end of a page that may be running heads, and how many characters at their starts are compared.
_OUTER, _BEGINNING = 2, 12
# A page is in columns if, at a place in its middle third, at most the first share of its lines crosses, and at least
# the second share is on each side.
_CROSSING, _BESIDE, _PLACES, _MIN_LINES = 0.2, 0.4, 20, 10


def parse_pdf(content: bytes, request: DocumentRequest) -> Document:
    """Parses the text of a PDF file as Markdown; raises DocumentError if it has no text in reading order."""
    pages = list(read_pages(content))
    full = list(filter(None, pages))
    if len(full) <= len(pages) / 2:
        raise DocumentError(
            f"{len(full):,} of {len(pages):,} pages have text: add that of scanned pages with `ocrmypdf`"
        )
    if (columned := sum(len(_columns(page)) > 1 for page in full)) > len(full) / 2:
        raise DocumentError(
            f"{columned:,} of {len(full):,} pages have columns: translate what `pdftotext -layout` writes"
        )
    columns = (chain.from_iterable(_columns(page)) for page in _without_running_heads(full))
    written = _Writer(list(map(list, columns))).write()
    # A character may come as two halves.
    return parse_markdown(written.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode(), request)


def _columns(page: Sequence[Line]) -> list[Sequence[Line]]:
    """Returns the lines of each column of a page, from left to right; there are at most two."""
    left, right = min((line.left for line in page), default=0.0), max((line.right for line in page), default=0.0)
    for step in range(_PLACES + 1 if len(page) >= _MIN_LINES else 0):
        place = left + (right - left) * (1 + step / _PLACES) / 3
        crossing = sum(any(start < place < end for start, end in line.spans) for line in page)
        sides = sum(line.spans[0][1] <= place for line in page), sum(line.spans[-1][0] >= place for line in page)
        if crossing <= _CROSSING * len(page) and min(sides) >= _BESIDE * len(page):
            words = [word for line in page for word in line.words]
            return [read_lines(it for it in words if (it.left > place) is is_right) for is_right in (False, True)]
    return [page]


def _without_running_heads(pages: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """Leaves out outer lines at heights where most pages have one whose beginning, but for digits, recurs there."""

    def key(line: Line) -> tuple[int, str]:
        return round(line.baseline), re.sub(r"\d+", "0", line.text)[:_BEGINNING]

    outer = [{key(line) for line in (*page[:_OUTER], *page[-_OUTER:])} for page in pages]
    counts = Counter(chain.from_iterable(outer))
    heights = Counter(chain.from_iterable({one[0] for one in keys if counts[one] > 1} for keys in outer))
    running = {(height, text) for height, text in counts if heights[height] > max(2, len(pages) / 2)}
    return [[line for line in page if key(line) not in keys & running] for page, keys in zip(pages, outer, strict=True)]


@dataclass(slots=True)
class _Block:
    """Lines that belong together; `start` and `left`: indentations of first and last; `mark`: of item or heading."""

    kind: Literal["text", "item", "heading", "code", "row"]
    lines: list[Line]
    start: float
    left: float
    mark: str = ""


class _Writer:
    """Writes pages, whose lines are in reading order."""

    def __init__(self, pages: Sequence[Sequence[Line]]) -> None:
        """Finds what is usual in the pages, and their blocks."""
        lines, sizes, leadings = list(chain.from_iterable(pages)), Counter[float](), Counter[float]({1.2: 1})
        for before, line in pairwise((*lines[:1], *lines)):
            sizes[line.size] += 0 if line.is_code else sum(map(str.isalpha, line.text))
            if line.size == before.size and line.baseline < before.baseline:
                leadings[max(round((before.baseline - line.baseline) / line.size, 1), 0.1)] += 1
        self._leading = max(leadings, key=leadings.__getitem__)
        least = _HEADING * max(sizes, key=sizes.__getitem__, default=0.0)
        large = sorted((size for size, letters in sizes.items() if letters and size > least), reverse=True)
        self._levels = {size: min(level, _MAX_LEVEL) for level, size in enumerate(large, 1)}
        words = (word.text for line in lines for word in line.words[:-1] if "-" in word.text)
        self._hyphenated = {word.strip(_PUNCTUATION) for word in words}
        self._blocks = list[_Block]()
        for page in filter(None, pages):
            self._left, self._right = min(line.left for line in page), max(line.right for line in page)
            for number, line in enumerate(page):
                self._add(line, is_first=number == 0)

    def write(self) -> str:
        """Returns the Markdown."""
        pieces, starts = list[str](), list[tuple[float, int]]()
        for block in self._blocks:
            is_item, between = block.kind == "item", "\n" if starts and block.kind == "item" else "\n\n"
            starts = [outer for outer in starts if is_item and outer[0] < block.start - _INDENT / 2]
            pieces += (between, " " * sum(width for _, width in starts), self._text(block))
            starts += [(block.start, max(4, len(block.mark) + 1))] * is_item
        return "".join((*pieces[1:], "\n"))

    def _add(self, line: Line, *, is_first: bool) -> None:
        """Adds a line to the last block, or begins another one."""
        kind, first, left = self._kind(line), line.words[0], line.left - self._left
        before = self._blocks[-1] if self._blocks else None
        block = before if before is not None and self._continues(before, line, is_first=is_first) else None
        may_begin = block is None or block.kind == "item" or block.lines[-1].text.endswith(":")
        match = _MARK.fullmatch(first.text) if may_begin and len(line.words) > 1 else None
        if kind in ("text", "row") and _LEADERS.search(line.text):
            word = first._replace(text=_LEADERS.sub("", line.text), is_code=False)
            # No line is so far to the right as to continue the entry.
            self._blocks.append(_Block("item", [line._replace(words=[word])], left, math.inf, "-"))
        elif kind in ("text", "row") and (match or first.text[0] in _BULLETS):
            words = [*([] if match else [first._replace(text=first.text[1:])] * (len(first.text) > 1)), *line.words[1:]]
            text_left, mark = words[0].left if words else line.right, f"{match[1]}." if match and match[1] else "-"
            self._blocks.append(_Block("item", [line._replace(words=words)], left, text_left - self._left, mark))
        elif block is not None:
            block.lines.append(line)
            block.left = left
        else:
            mark = "#" * self._levels[line.size] if kind == "heading" else ""
            self._blocks.append(_Block(kind, [line], left, left, mark))

    def _kind(self, line: Line) -> Literal["text", "heading", "code", "row"]:
        is_heading = line.size in self._levels and any(map(str.isalpha, line.text))
        return "heading" if is_heading else "code" if line.is_code else "row" if len(line.spans) > 1 else "text"

    def _continues(self, block: _Block, line: Line, *, is_first: bool) -> bool:
        """Returns whether a line belongs to a block, unless it has the mark of an item."""
        last, kind, has_ended = block.lines[-1], self._kind(line), block.lines[-1].text.endswith(_ENDS)
        is_near = is_first or last.baseline - line.baseline < _SPACED * self._leading * max(last.size, line.size)
        if block.kind == "code" or {block.kind, kind} & {"heading", "row"}:
            return block.kind == kind and (kind == "code" or (is_near and not is_first and last.size == line.size))
        full, short = (self._left + share * (self._right - self._left) for share in (_FULL, _SHORT))
        indent = (line.left - self._left - block.left) / line.size
        is_aligned = indent > -_INDENT or (len(block.lines) == 1 and block.kind == "text")
        is_aligned &= indent < _INDENT or (last.right > full and not has_ended)
        is_open = not has_ended if is_first else last.right > (full if has_ended else short)
        if kind == "code":  # A line of a paragraph may be all code.
            is_open = last.right > full and indent < _INDENT and not last.text.endswith(":")
        return is_near and is_aligned and is_open and abs(last.size - line.size) < line.size / 6

    def _text(self, block: _Block) -> str:
        if block.kind == "code":
            return "\n".join(self._code(block.lines))
        if block.kind == "row" and len(block.lines) > 1:
            return _table(block.lines)
        text = ""
        for piece in (_inline(line.words) for line in block.lines if line.words):
            if text.endswith("-") and text[-2:-1].isalpha() and piece[0].islower():
                word = text.rpartition(" ")[2] + piece.partition(" ")[0]
                text = text if word.strip(_PUNCTUATION) in self._hyphenated else text[:-1]
            elif text and not all(east_asian_width(character) in "WF" for character in (text[-1], piece[0])):
                text += " "
            text += piece
        return f"{block.mark} {text if block.kind == 'heading' else write_block(text)}".lstrip()

    def _code(self, lines: Sequence[Line]) -> Iterator[str]:
        words = [word for line in lines for word in line.words]
        pitch = median((word.right - word.left) / len(word.text) for word in words) or 1.0
        left, above = min(line.left for line in lines), lines[0].baseline
        yield (fence := "`" * max(3, *(word.text.count("`") + 1 for word in words)))
        for line in lines:
            empty = round((above - line.baseline) / (self._leading * line.size)) - 1
            yield from [""] * min(max(empty, 0), _MAX_EMPTY_LINES)
            text, right, above = "", left, line.baseline
            for word in line.words:
                blanks = max(round((word.left - right) / pitch), bool(text))
                text, right = f"{text}{' ' * min(blanks, _MAX_BLANKS)}{word.text}", word.right
            yield text
        yield fence


def _inline(words: Sequence[Word]) -> str:
    pieces = list[str]()
    for is_code, run in groupby(words, key=lambda word: word.is_code):
        text = " ".join(word.text for word in run)
        code = text.rstrip(".,;:\u201d\u2019")
        pieces.append(f"`{code}`{text[len(code) :]}" if is_code and code and "`" not in code else write_text(text))
    return " ".join(pieces)


def _table(lines: Sequence[Line]) -> str:
    """Returns the rows of a table, of which the first one is the head."""
    rows = [
        [_inline([it for it in line.words if start <= it.left <= end]).replace("|", r"\|") for start, end in line.spans]
        for line in lines
    ]
    columns = max(map(len, rows))
    rows[:1] = [rows[0] + [""] * (columns - len(rows[0])), ["---"] * columns]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
