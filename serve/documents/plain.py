"""Plain text: each line is a segment, and so is each column of a line.

Marks of lists and symbols around a text stay, and so do white space and byte order mark.
"""

import re
from collections.abc import Iterator

from dragoman.serve.documents.document import Document, DocumentRequest, Segment, is_translatable
from dragoman.serve.documents.splice import Part, Span, SplicedDocument, decode, unchanged

# Line ends, and what stands between the columns of a table.
_SEPARATOR = re.compile(r"[\r\n\t]|[ ]{3,}+|[ ]\|(?=[ ])|\Z")
# Not of a word, a quotation, a bracket, a sum or an amount: bullets, dashes, arrows, marks of headings, stars, emoji.
_SYMBOL = (
    r"[^\w\s\ufeff\"'\u2018-\u201f\u00ab\u00bb\u2039\u203a()\[\]{}$\u00a2-\u00a5\u20a0-\u20bf%\u00b0\u00a7]"
    r"|[\u2460-\u24ff\u2776-\u2793]"
)
_SYMBOLS = rf"(?:{_SYMBOL}){{1,100}}"
# The punctuation of a sentence is excluded: it has a space before it in French.
_LAST_SYMBOLS = re.compile(rf"(?:(?![.,;:!?\u2026])(?:{_SYMBOL})|_){{1,100}}")
_NUMBER = r"\d{1,9}(?:\.\d{1,9}){0,8}"
# Symbols, or a box to tick; `1.`, `2.3.`, `4)`, `(5)`; `a)`, `(b)`, `C.`; `iv.`; `1.1` before a capital.
_MARK = (
    rf"{_SYMBOLS}|\[[ xX]\]|\[\d[\d:.,]{{0,20}}\]|{_NUMBER}[.:)]|\({_NUMBER}\)|\(?[A-Za-z]\)|[A-Za-z]\."
    r"|\(?(?:[ivx]{1,5}|[IVX]{1,5})[.)]|\d{1,9}(?:\.\d{1,9}){1,8}(?=\s++[A-Z\u00c0-\u00de])"
)
_LIST_MARKS = re.compile(rf"[\s\ufeff]*+(?:(?:{_MARK})(?:\s++|\Z))*+")


def parse_plain(content: bytes, request: DocumentRequest) -> Document:
    """Parses a text file."""
    text, encode = decode(content)
    return SplicedDocument(text, _parts(text), encode, request)


def _parts(text: str) -> Iterator[Part]:
    start = 0
    for match in _SEPARATOR.finditer(text):
        first, last = _text_of(text, start, match.start())
        if is_translatable(text[first:last]):
            yield Part(Segment(text[first:last]), ((first, last),), unchanged)
        start = match.end()


def _text_of(text: str, start: int, end: int) -> Span:
    """Returns the characters of a column without the marks, the symbols and the white space around them."""
    marks = _LIST_MARKS.match(text, start, end)
    first = marks.end() if marks else start
    bare = text[first:end].rstrip().rstrip("\ufeff")
    words, _, last = bare.rpartition(" ")
    if words and _LAST_SYMBOLS.fullmatch(last):
        bare = words.rstrip()
    return first, first + len(bare)
