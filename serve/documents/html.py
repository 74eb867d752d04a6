"""HTML and XHTML: each block of text is a segment with its tags."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest, Segment, is_translatable
from dragoman.serve.documents.inline import Inline, Item, ItemKind
from dragoman.serve.documents.splice import Part, Span, SplicedDocument, decode, decode_as, encoding_of
from dragoman.serve.documents.xml import decode_xml, escape
from dragoman.serve.protect.markup.blocks import SPACES, Block, BlockReader, MarkKind
from dragoman.serve.protect.markup.elements import Element, MarkupOptions, build_tree
from dragoman.serve.protect.markup.html import scan_html
from dragoman.serve.protect.markup.tokens import MarkupError, Token, names
from dragoman.serve.protect.markup.xml import check_xml, xml_tokens

# Each takes about 300 bytes.
MAX_TOKENS = 1_000_000
# Elements whose text is code or input, which stays.
CODE = names("code kbd samp tt var")
# Browsers write text so.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\u00a0": "&nbsp;"})
_CHARSET = re.compile(rb"<meta[^>]*?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]+)", re.IGNORECASE)
_Escaped = Callable[[str], tuple[str]]
# Where browsers look for the encoding.
_HEAD_BYTES = 1024


def parse_html(content: bytes, request: DocumentRequest) -> Document:
    """Parses a page or a part of one."""
    text, encode = _decode(content)
    return SplicedDocument(text, html_parts(text, ignored_tags(request)), encode, request)


def parse_xhtml(content: bytes, request: DocumentRequest) -> Document:
    """Parses a page of XHTML; raises DocumentError if it is not well-formed."""
    text, encode = decode_xml(content)
    return SplicedDocument(text, xhtml_parts(text, ignored_tags(request)), encode, request)


def ignored_tags(request: DocumentRequest) -> frozenset[str]:
    """Returns the names of elements whose content stays."""
    return CODE.union(map(str.lower, request.ignore_tags))


def html_parts(text: str, ignore_tags: frozenset[str], offset: int = 0) -> Iterator[Part]:
    """Yields the parts of a page at `offset` of the document; raises DocumentError if it exceeds a limit."""
    return _parts(text, scan_html(text), ignore_tags, offset, _escaped)


def xhtml_parts(text: str, ignore_tags: frozenset[str]) -> Iterator[Part]:
    """Yields the parts of a page; raises DocumentError if it is not well-formed or exceeds a limit."""
    try:
        check_xml(text)
    except MarkupError as error:
        raise DocumentError(str(error)) from error
    yield from _parts(text, xml_tokens(text), ignore_tags, 0, _escaped_xml)


def _parts(
    text: str, scanned: Iterable[Token], ignore_tags: frozenset[str], offset: int, escaped: _Escaped
) -> Iterator[Part]:
    tokens, elements = list[Token](), list[Element]()
    options = MarkupOptions("html", ignore_tags=ignore_tags)
    try:
        for token in scanned:
            tokens.append(token)
            if len(tokens) > MAX_TOKENS:
                raise DocumentError(f"more than {MAX_TOKENS} tags and texts")
        tree = build_tree(text, tokens, options)
        elements = tree.elements
        for block in BlockReader(text, tokens, tree, options, ()).read():
            part = _part(text, block, offset, escaped) if is_translatable(block.text) else None
            if part is not None:
                yield part
    except MarkupError as error:
        raise DocumentError(str(error)) from error
    finally:
        _discard(tokens)
        _discard(elements)


def _discard(items: list[Any]) -> None:
    """Empties a list in pieces: other threads run in between."""
    while items:
        del items[-1000:]


def _part(text: str, block: Block, offset: int, escaped: _Escaped) -> Part | None:
    """Returns the part of a block; None: its only letters are in text that stays."""
    start, end = _span(text, block)
    span = offset + start, offset + end
    if not block.marks:
        # Most blocks are plain text; they share a function.
        return Part(Segment(block.text.strip()), (span,), escaped)
    inline = Inline.of(list(_items(text, block, end)))
    kinds = bytes(item.kind.value for item in inline.items)
    raws = tuple("" if item.kind is ItemKind.TEXT else item.raw for item in inline.items)
    render = partial(_render, (inline.before, inline.after), kinds, raws, escaped)
    return Part(inline.segment, (span,), render) if inline.is_translatable else None


def _render(
    around: tuple[str, str], kinds: bytes, raws: tuple[str, ...], escaped: _Escaped, translation: str
) -> tuple[str]:
    """Renders the translation of an inline text, whose items are stored as few objects."""
    inline = Inline(around[0], tuple(map(Item, map(ItemKind, kinds), raws)), around[1])
    return (inline.render(translation, lambda text: escaped(text)[0]),)


def _items(text: str, block: Block, end: int) -> Iterator[Item]:
    """Yields the items of a block whose characters end at an offset, without white space around them."""
    offset = min(len(block.text) - len(block.text.lstrip()), block.marks[0].text_start)
    for mark in block.marks:
        yield Item(ItemKind.TEXT, block.text[offset : mark.text_start])
        key = block.text[mark.text_start : mark.text_end] if mark.kind is MarkKind.KEPT else str(mark.element)
        yield Item(ItemKind[mark.kind.name], mark.raw(text), key)
        offset = mark.text_end
        # White space around a point is one space of the block, or none at its beginning.
        spaced = block.text[offset - 1 : offset] in ("", " ") and mark.end < end and text[mark.end] in SPACES
        if mark.kind is MarkKind.POINT and spaced:
            yield Item(ItemKind.TEXT, " ")
    yield Item(ItemKind.TEXT, block.text[offset:].rstrip())


def _escaped(translation: str) -> tuple[str]:
    return (translation.translate(_ESCAPES),)


def _escaped_xml(translation: str) -> tuple[str]:
    """Renders a translation without names of HTML, which XML may not have."""
    return (escape(translation),)


def _span(text: str, block: Block) -> Span:
    """Returns the characters of a block with its tags, without white space around them, such as no-break spaces."""
    pieces = block.pieces[block.text.startswith(" ") : len(block.pieces) - block.text.endswith(" ")]
    spans = [(start, end) for _, start, end in pieces] + [(mark.start, mark.end) for mark in block.marks]
    start, end = min(start for start, _ in spans), max(end for _, end in spans)
    raw = text[start:end]
    return start + len(raw) - len(raw.lstrip()), start + len(raw.rstrip())


def _decode(content: bytes) -> tuple[str, Callable[[str], bytes]]:
    match = _CHARSET.search(content[:_HEAD_BYTES])
    encoding = encoding_of(match[1].decode()) if match else None
    if encoding is None or content.startswith(b"\xef\xbb\xbf"):
        return decode(content)
    return decode_as(content, encoding, "xmlcharrefreplace")
