"""XML files of values: finds elements by their parents, and replaces their text."""

from collections.abc import Callable, Iterator, Sequence

from dragoman.serve.documents.document import DocumentError, DocumentRequest
from dragoman.serve.documents.splice import Part, Span
from dragoman.serve.documents.tagged import value_part
from dragoman.serve.documents.xml import XmlText, decode_xml, escape, local
from dragoman.serve.protect.markup.tokens import Kind

_TAGS = (Kind.START, Kind.EMPTY)


def read_xml(content: bytes, root: str, kind: str) -> tuple[XmlText, Callable[[str], bytes]]:
    """Returns a file and its encoder; raises DocumentError, with the kind of the file, for another root element."""
    text, encode = decode_xml(content)
    document = XmlText(text)
    if local(document.tokens[document.root].name) != root:
        raise DocumentError(f"not {kind}: expected the element {root}")
    return document, encode


def children(document: XmlText, index: int) -> Iterator[tuple[int, str]]:
    """Yields the elements directly inside of one, and their names without prefixes."""
    end, index = document.ends[index], index + 1
    while index < end:
        if document.tokens[index].kind in _TAGS:
            yield index, local(document.tokens[index].name)
        index = document.ends[index] + 1


def named_elements(document: XmlText, wanted: frozenset[str]) -> Iterator[int]:
    """Yields the elements of a document with any of the names, which have no prefixes."""
    for index, token in enumerate(document.tokens):
        if token.kind in _TAGS and local(token.name) in wanted:
            yield index


def content_span(document: XmlText, index: int) -> Span:
    """Returns the characters between the tags of an element that is not empty."""
    return document.tokens[index].end, document.tokens[document.ends[index]].start


def text_of(document: XmlText, index: int) -> str | None:
    """Returns the text of an element; None: it has other elements, or is empty."""
    if document.tokens[index].kind is Kind.EMPTY or any(children(document, index)):
        return None
    return document.plain(index + 1, document.ends[index] - 1)


def element_part(document: XmlText, index: int, request: DocumentRequest, dropped: Sequence[Span] = ()) -> Part | None:
    """Returns the part of an element with nothing but text; None: it has none, or only programs read it.

    `dropped`: characters of the document that mean nothing once the text changes.
    """
    text, spans = text_of(document, index), (content_span(document, index), *dropped)
    return (text and value_part(text, spans, request.ignore_tags, _write, len(dropped))) or None


def _write(before: str, after: str, dropped: int, text: str) -> tuple[str, ...]:
    return escape(f"{before}{text}{after}"), *[""] * dropped
