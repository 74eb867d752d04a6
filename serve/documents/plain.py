"""Plain text: each line is a segment."""

import re

from serve.documents.document import Document, DocumentRequest, Segment, is_translatable
from serve.documents.splice import Part, SplicedDocument, decode, unchanged

_LINE = re.compile(r"[^\r\n]+")


def parse_plain(content: bytes, request: DocumentRequest) -> Document:
    """Parses a text file."""
    text, encode = decode(content)
    lines = (match.span() for match in _LINE.finditer(text))
    parts = (text_part(text, *line) for line in lines if is_translatable(text[slice(*line)]))
    return SplicedDocument(text, parts, encode, request)


def text_part(text: str, start: int, end: int) -> Part:
    """Returns the part of a text without surrounding white space and byte order mark."""
    raw = text[start:end]
    bare = raw.strip().strip("\ufeff")
    first = start + raw.index(bare)
    return Part(Segment(bare), ((first, first + len(bare)),), unchanged)
