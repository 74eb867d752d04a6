"""JSON: each text that is a value is a segment; names stay.

In ARB files (`.arb`), members with names that begin with `@` stay, too. Their locale becomes the target language.
"""

import json
import re
from collections.abc import Callable, Iterator
from json.decoder import scanstring  # type: ignore[attr-defined]

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest, is_translatable
from dragoman.serve.documents.splice import Part, Span, SplicedDocument, decode
from dragoman.serve.documents.tagged import value_part

# Each takes about 100 bytes while the file is checked. Brackets inside of texts count too.
MAX_COLLECTIONS = 1_000_000
_LOCALE = re.compile(r"\"@@locale\"\s*+:\s*+\"(?P<NAME>[A-Za-z0-9_-]*+)\"")
# After a name.
COLON = re.compile(r"\s*+:")
# Half of a surrogate pair is no character.
HALF = re.compile("[\ud800-\udfff]")
TOKEN = re.compile(r"[\s:]*+(?P<MARK>[\"{}\[\],]|[^\s\"{}\[\],:]++)")


def read_json(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    """Returns the text of a file and its encoder; raises DocumentError if it is malformed or too large."""
    text, encode = decode(content)
    if text.count("[") + text.count("{") > MAX_COLLECTIONS:
        raise DocumentError(f"more than {MAX_COLLECTIONS:,} lists and objects: divide the document")
    try:
        # Numbers stay texts: long ones would be refused, and take quadratic time.
        json.loads(text.removeprefix("\ufeff"), parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise DocumentError(f"not JSON: {error}") from error
    return text, encode


def parse_json(content: bytes, request: DocumentRequest, kept: str = "") -> Document:
    """Parses a JSON file, in which members with names that begin with `kept` stay; empty: none do."""
    text, encode = read_json(content)
    parts = (_part(text, *value, request) for value in _values(text, kept))
    locale = _LOCALE.search(text) if kept else None
    edits = [(locale.span("NAME"), request.target)] if locale and request.needs_target(locale["NAME"]) else []
    return SplicedDocument(text, filter(None, parts), encode, request, edits)


def _values(text: str, kept: str) -> Iterator[tuple[str, Span]]:
    """Yields the values of valid JSON, and their quoted characters; members whose name begins with `kept` stay."""
    # `stays` has an element per open bracket: whether its content stays.
    stays, waiting, position = [False], False, 0
    while match := TOKEN.match(text, position):
        mark, position = match["MARK"], match.end()
        if mark == '"':
            start = match.start("MARK")
            value, position = scanstring(text, position, True)
            if COLON.match(text, position):
                waiting = bool(kept) and value.startswith(kept)
            elif not (waiting or stays[-1]) and is_translatable(value) and not HALF.search(value):
                yield value, (start, position)
        elif mark in "{[":
            stays.append(stays[-1] or waiting)
            waiting = False
        elif mark in "}]":
            stays.pop()
        elif mark == ",":
            waiting = False


def _part(text: str, value: str, span: Span, request: DocumentRequest) -> Part | None:
    raw = text[slice(*span)]
    return value_part(value, (span,), request.ignore_tags, _write, raw.isascii() and "\\u" in raw)


def _write(before: str, after: str, as_ascii: bool, text: str) -> tuple[str]:
    return (json.dumps(f"{before}{text}{after}", ensure_ascii=as_ascii),)
