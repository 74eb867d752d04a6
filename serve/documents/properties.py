r"""Properties of Java: each value is a segment; names and comments stay.

A file in UTF-8 gets characters as they are, a file in ASCII or ISO 8859-1 gets escapes such as `\u00e9`. In a value
with arguments, such as `{0}`, two apostrophes mean one.
"""

import re
from collections.abc import Iterator

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.escapes import read_escapes, write_ascii, write_escapes
from dragoman.serve.documents.splice import Part, SplicedDocument, decode, decode_as
from dragoman.serve.documents.tagged import value_part

_ESCAPED = r"\\(?:\r\n|[\s\S]|\Z)"
_LINE = re.compile(
    rf"[\ufeff \t\f]*+(?:[#!][^\r\n]*+|(?:[^\\ \t\f\r\n=:]|{_ESCAPED})*+[ \t\f]*+[=:]?+[ \t\f]*+"
    rf"(?P<VALUE>(?:[^\\\r\n]|{_ESCAPED})*+))(?:\r\n|\r|\n|\Z)"
)
_ARGUMENT = re.compile(r"\{\d")


def parse_properties(content: bytes, request: DocumentRequest) -> Document:
    """Parses a file of properties."""
    try:
        text, encode = decode(content)
    except DocumentError:
        text, encode = decode_as(content, "iso-8859-1")
        return SplicedDocument(text, _parts(text, request, as_ascii=True), encode, request)
    return SplicedDocument(text, _parts(text, request, as_ascii=text.isascii()), encode, request)


def _parts(text: str, request: DocumentRequest, *, as_ascii: bool) -> Iterator[Part]:
    for found in _LINE.finditer(text):
        value = read_escapes(found["VALUE"] or "")
        message = bool(_ARGUMENT.search(value)) and "'" not in value.replace("''", "")
        value = value.replace("''", "'") if message else value
        part = value_part(value, (found.span("VALUE"),), request.ignore_tags, _write, as_ascii, message)
        if part is not None:
            yield part


def _write(before: str, after: str, as_ascii: bool, message: bool, text: str) -> tuple[str]:
    value = write_escapes(f"{before}{text}{after}")
    value = value.replace("'", "''") if message else value
    value = f"\\{value}" if value.startswith(" ") else value
    return (write_ascii(value) if as_ascii else value,)
