"""Plain text: each line is a segment. Marks of lists stay, and so do white space and byte order mark."""

import re

from serve.documents.document import Document, DocumentRequest, Segment, is_translatable
from serve.documents.splice import Part, SplicedDocument, decode, unchanged

_LINE = re.compile(r"[^\r\n]+")
# Dashes, asterisks, marks of quotations, geometric shapes, stars, boxes, check marks, arrows.
_BULLET = "[-*+>\u2013\u2014\u2022\u2023\u2043\u00b7\u25a0-\u25ff\u2605\u2606\u2610-\u2612\u2713-\u2718\u27a2-\u27a4]"
_NUMBER = r"\d{1,9}(?:\.\d{1,9}){0,8}"
# A bullet or a box to tick; `1.`, `2.3.`, `4)`, `(5)`; `a)`, `(b)`, `C.`; `iv.`; `1.1` before a capital.
_MARK = (
    rf"{_BULLET}|\[[ xX]\]|{_NUMBER}[.:)]|\({_NUMBER}\)|\(?[A-Za-z]\)|[A-Za-z]\.|\(?(?:[ivx]{{1,5}}|[IVX]{{1,5}})[.)]"
    r"|\d{1,9}(?:\.\d{1,9}){1,8}(?=\s++[A-Z\u00c0-\u00de])"
)
_LIST_MARKS = re.compile(rf"[\s\ufeff]*+(?:(?:{_MARK})(?:\s++|\Z))*+")


def parse_plain(content: bytes, request: DocumentRequest) -> Document:
    """Parses a text file."""
    text, encode = decode(content)
    parts = (_part(text, *found.span()) for found in _LINE.finditer(text) if is_translatable(found[0]))
    return SplicedDocument(text, filter(None, parts), encode, request)


def _part(text: str, start: int, end: int) -> Part | None:
    """Returns the part of a line without what stays around it; None: its only letters are in the mark of a list."""
    marks = _LIST_MARKS.match(text, start, end)
    first = marks.end() if marks else start
    bare = text[first:end].rstrip().rstrip("\ufeff")
    return Part(Segment(bare), ((first, first + len(bare)),), unchanged) if is_translatable(bare) else None
