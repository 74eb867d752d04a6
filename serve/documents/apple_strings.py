"""Strings files of iOS and macOS: each value is a segment; names and comments stay."""

import re
from collections.abc import Iterator

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.escapes import read_escapes, write_escapes
from dragoman.serve.documents.splice import Part, SplicedDocument, decode
from dragoman.serve.documents.tagged import value_part

_TOKEN = re.compile(
    r"/\*(?:[^*]|\*(?!/))*+(?:\*/)?+|//[^\r\n]*+|(?P<TEXT>\"(?:[^\"\\]|\\[\s\S])*+(?P<END>\")?+)|(?P<MARK>[=;])"
)


def parse_strings(content: bytes, request: DocumentRequest) -> Document:
    """Parses a strings file."""
    text, encode = decode(content)
    if "\0" in text or text.lstrip("\ufeff \t\r\n").startswith("<"):
        raise DocumentError("not a strings file: expected names and texts in quotes, not a property list in XML or NUL")
    return SplicedDocument(text, _parts(text, request), encode, request)


def _parts(text: str, request: DocumentRequest) -> Iterator[Part]:
    is_value = False
    for token in _TOKEN.finditer(text):
        if token["MARK"]:
            is_value = token["MARK"] == "="
        elif token["TEXT"]:
            if not token["END"]:
                line = text.count("\n", 0, token.start()) + 1
                raise DocumentError(f"line {line}: not a strings file: expected a text in quotes")
            value = read_escapes(token["TEXT"][1:-1], apple=True).replace("\0", "\ufffd")
            part = value_part(value, (token.span("TEXT"),), request.ignore_tags, _write) if is_value else None
            is_value = False
            if part is not None:
                yield part


def _write(before: str, after: str, text: str) -> tuple[str]:
    return (f'"{write_escapes(before + text + after, chr(34))}"',)
