"""HTML: each block of text is a segment with its tags."""

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import Any

from serve.documents.document import Document, DocumentError, DocumentRequest, Segment, is_translatable
from serve.documents.encodings import encoding_of
from serve.documents.splice import Part, Span, SplicedDocument, decode, decode_as, unchanged
from serve.markup.blocks import Block, BlockReader
from serve.markup.elements import Element, MarkupOptions, build_tree
from serve.markup.html import scan_html
from serve.markup.tokens import MarkupError, Token

# Each takes about 300 bytes.
MOST_TOKENS = 1_000_000
_OPTIONS = MarkupOptions("html")
_CHARSET = re.compile(rb"<meta[^>]*?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)
# Where browsers look for the encoding.
_HEAD_BYTES = 1024


def parse_html(content: bytes, request: DocumentRequest) -> Document:
    """Parses a page or a part of one."""
    text, encode = _decode(content)
    return SplicedDocument(text, html_parts(text), encode, request)


def html_parts(text: str, offset: int = 0) -> Iterator[Part]:
    """Yields the parts of a page.

    Args:
        text: the page.
        offset: place of the page in the document.

    Raises:
        DocumentError: if the page exceeds a limit.
    """
    tokens, elements = list[Token](), list[Element]()
    try:
        for token in scan_html(text):
            tokens.append(token)
            if len(tokens) > MOST_TOKENS:
                raise DocumentError(f"more than {MOST_TOKENS} tags and texts")
        tree = build_tree(text, tokens, _OPTIONS)
        elements = tree.elements
        for block in BlockReader(text, tokens, tree, _OPTIONS, ()).read():
            if is_translatable(block.text):
                start, end = _span(text, block)
                yield _part(text[start:end], block, (offset + start, offset + end))
    except MarkupError as error:
        raise DocumentError(str(error)) from error
    finally:
        _discard(tokens)
        _discard(elements)


def _discard(items: list[Any]) -> None:
    """Empties a list in pieces: other threads run in between."""
    while items:
        del items[-1000:]


def _part(raw: str, block: Block, span: Span) -> Part:
    # Most blocks are plain text, which needs no alignment.
    if block.marks or "&" in raw:
        return Part(Segment(raw, "html"), (span,), unchanged)
    return Part(Segment(block.text.strip()), (span,), _escaped)


def _escaped(translation: str) -> tuple[str]:
    return (escape(translation, quote=False),)


def _span(text: str, block: Block) -> Span:
    """Returns the characters of a block with its tags, without white space around them, such as no-break spaces."""
    pieces = block.pieces[block.text.startswith(" ") : len(block.pieces) - block.text.endswith(" ")]
    places = [(start, end) for _, start, end in pieces] + [(mark.start, mark.end) for mark in block.marks]
    start, end = min(start for start, _ in places), max(end for _, end in places)
    raw = text[start:end]
    return start + len(raw) - len(raw.lstrip()), start + len(raw.rstrip())


def _decode(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    found = _CHARSET.search(content[:_HEAD_BYTES])
    encoding = encoding_of(found[1].decode()) if found else None
    if encoding is None or content.startswith(b"\xef\xbb\xbf"):
        return decode(content)
    return decode_as(content, encoding, "xmlcharrefreplace")
