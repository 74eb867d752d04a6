"""Reads the lines of PDF files with PDFium, a native library that the first file loads. Places are in points."""

import ctypes
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, groupby, repeat
from typing import Any, Literal, NamedTuple
from unicodedata import bidirectional

from dragoman.serve.documents.document import DocumentError

_MAX_POINTS = 14_400  # of a page, by the specification
_CODE_FONT = re.compile(rb"mono|nimbusmon|courier|cmtt|lmtt|sftt|xb?tt|typewriter|consol", re.IGNORECASE)
_END_HYPHEN = "\x02"  # of PDFium, at the end of a line
_WORD = re.compile(rf"[^\s{_END_HYPHEN}]+{_END_HYPHEN}?|{_END_HYPHEN}")
# Constants of PDFium, and the bytes of the name of a font that are read.
_PASSWORD_ERROR, _FIXED_PITCH, _NAME_BYTES = 4, 1, 256
# By the size of a line: gaps between cells and columns; how far a word may be above or below its line.
_WIDE_GAP, _SHIFT = 1.1, 0.4


class Word(NamedTuple):
    """Characters without blanks; places count from the left and from the bottom of the page."""

    text: str
    left: float
    right: float
    baseline: float
    size: float
    is_code: bool


class Line(NamedTuple):
    """Words in reading order; `size`: of most characters, in half points; `spans`: between wide gaps, from the left."""

    words: Sequence[Word]
    text: str
    spans: Sequence[tuple[float, float]]
    left: float
    right: float
    baseline: float
    size: float
    is_code: bool


def read_pages(content: bytes) -> Iterator[list[Line]]:
    """Yields the lines of each page; raises DocumentError for a file that cannot be read."""
    try:
        import pypdfium2_raw as pdfium  # noqa: PLC0415 - the extra `pdf` has it; a server leaves it to the parsers
    except ImportError as error:
        raise DocumentError("a PDF file requires the extra `pdf`: pip install 'dragoman[pdf]'") from error
    # PDFium searches for no fonts of the system if the list of folders is empty. A second call changes nothing.
    folders = (ctypes.POINTER(ctypes.c_char) * 1)()
    pdfium.FPDF_InitLibraryWithConfig(pdfium.FPDF_LIBRARY_CONFIG(version=2, m_pUserFontPaths=folders))
    with ExitStack() as stack:
        if document := pdfium.FPDF_LoadMemDocument64(content, len(content), None):
            stack.callback(pdfium.FPDF_CloseDocument, document)
        elif pdfium.FPDF_GetLastError() != _PASSWORD_ERROR:
            raise DocumentError("not a PDF file, or a damaged one")
        if not document or pdfium.FPDF_GetSecurityHandlerRevision(document) >= 0:
            raise DocumentError("the document is encrypted: decrypt it with `qpdf --decrypt`")
        for number in range(pdfium.FPDF_GetPageCount(document)):
            yield read_lines(_words(pdfium, document, number))


def _words(pdfium: Any, document: Any, number: int) -> Iterator[Word]:
    with ExitStack() as stack:
        if page := pdfium.FPDF_LoadPage(document, number):
            stack.callback(pdfium.FPDF_ClosePage, page)
        if texts := pdfium.FPDFText_LoadPage(page):
            stack.callback(pdfium.FPDFText_ClosePage, texts)
        codes = map(pdfium.FPDFText_GetUnicode, repeat(texts), range(pdfium.FPDFText_CountChars(texts)))
        found = (pdfium.FS_RECTF(), pdfium.FS_RECTF(), pdfium.FS_MATRIX(), ctypes.c_double(), ctypes.c_double())
        turns = pdfium.FPDFPage_GetRotation(page)
        for match in _WORD.finditer("".join(map(chr, codes))):
            yield from _placed(pdfium, texts, found, match, turns)


def _turn(x: float, y: float, turns: int) -> tuple[float, float]:
    """Returns a place or a direction of a page that is shown after quarter turns to the right."""
    for _ in range(turns):
        x, y = y, -x
    return x, y


def _placed(pdfium: Any, texts: Any, found: tuple[Any, ...], match: re.Match[str], turns: int) -> Iterator[Word]:
    """Yields a word with its place, unless it is rotated or outside of any page; `found`: what functions of C set."""
    first, last, matrix, x, y = found
    start, end, flags, font = match.start(), match.end() - 1, ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
    pdfium.FPDFText_GetLooseCharBox(texts, start, first)
    pdfium.FPDFText_GetLooseCharBox(texts, end, last)
    pdfium.FPDFText_GetCharOrigin(texts, start, x, y)
    pdfium.FPDFText_GetMatrix(texts, start, matrix)
    pdfium.FPDFText_GetFontInfo(texts, (start + end) // 2, font, _NAME_BYTES, flags)
    across, along = _turn(matrix.a, matrix.b, turns)
    size = pdfium.FPDFText_GetFontSize(texts, start) * abs(_turn(matrix.c, matrix.d, turns)[1])
    boxes = first, last
    ends = [_turn(*end, turns)[0] for it in boxes for end in ((it.left, it.bottom), (it.right, it.top))]
    place = min(ends), max(ends), _turn(x.value, y.value, turns)[1]
    if abs(along) <= across and 0 < size <= _MAX_POINTS and all(abs(it) <= _MAX_POINTS for it in place):
        is_code = bool(flags.value & _FIXED_PITCH or _CODE_FONT.search(font.value))
        yield Word(match[0].replace(_END_HYPHEN, "-"), *place, size, is_code)


def read_lines(words: Iterable[Word]) -> list[Line]:
    """Returns the lines of a page from top to bottom."""
    rows = list[list[Word]]()
    for word in sorted(words, key=lambda word: -word.baseline):
        if rows and rows[-1][0].baseline - word.baseline < _SHIFT * max(word.size, rows[-1][0].size):
            rows[-1].append(word)
        else:
            rows.append([word])
    return list(map(_line, rows))


def _line(row: Sequence[Word]) -> Line:
    sizes, spans, words = Counter[float](), list[tuple[float, float]](), sorted(row, key=lambda word: word.left)
    for word in words:
        sizes[max(round(2 * word.size), 1) / 2] += len(word.text)
    size = max(sizes, key=sizes.__getitem__)
    for word in words:
        is_near = spans and word.left - spans[-1][1] < _WIDE_GAP * size
        spans.append((spans[-1][0], max(spans.pop()[1], word.right)) if is_near else (word.left, word.right))
    words = words if all(word.text.isascii() for word in words) else _in_reading_order(words)
    left, right, is_code = spans[0][0], spans[-1][1], all(word.is_code for word in words)
    return Line(words, " ".join(word.text for word in words), spans, left, right, row[0].baseline, size, is_code)


def _in_reading_order(words: list[Word]) -> list[Word]:
    """Returns words, which are from left to right, in the order of most of them, and each run of others in its own."""
    directions = list(map(_direction, words))
    base = "R" if directions.count("R") > directions.count("L") else "L"
    runs = groupby(words if base == "L" else words[::-1], key=_direction)
    ordered = ([*run] if direction in ("", base) else [*run][::-1] for direction, run in runs)
    return list(chain.from_iterable(ordered))


def _direction(word: Word) -> Literal["L", "R", ""]:
    """Returns whether a word is from left to right, from right to left, or neither, as numbers are."""
    kinds = set(map(bidirectional, word.text))
    return "R" if kinds & {"R", "AL"} else "L" if "L" in kinds else ""
