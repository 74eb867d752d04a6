"""Qt Linguist (`.ts`): translates messages without a translation, or all on request, which stay unfinished.

Vanished and obsolete messages stay. Each numerus form of a message gets the same translation.
"""

from collections.abc import Iterator
from dataclasses import replace

from dragoman.serve.documents.document import Document, DocumentRequest
from dragoman.serve.documents.splice import Part, SplicedDocument
from dragoman.serve.documents.tagged import value_part
from dragoman.serve.documents.xml import XmlText, escape, with_attribute
from dragoman.serve.documents.xml_values import children, read_xml, text_of
from dragoman.serve.protect.markup.tokens import Kind

_REMOVED = ("vanished", "obsolete")
_UNFINISHED = "unfinished"
_LANGUAGE = "language"


def parse_qt(content: bytes, request: DocumentRequest) -> Document:
    """Parses a file of translations."""
    document, encode = read_xml(content, "TS", "Qt translations")
    root = document.tokens[document.root]
    edits = []
    if request.needs_target(document.attributes(document.root).get(_LANGUAGE, "")):
        tag = document.raw(document.root, document.root)
        edits.append(((root.start, root.end), with_attribute(tag, _LANGUAGE, request.target)))
    parts = (
        _part(document, index, request)
        for index, token in enumerate(document.tokens)
        if token.kind is Kind.START and token.name == "message"
    )
    return SplicedDocument(document.text, filter(None, parts), encode, request, edits)


def _part(document: XmlText, message: int, request: DocumentRequest) -> Part | None:
    """Returns the part of a message; None: it is translated, or has more than text."""
    found = {name: index for index, name in children(document, message)}
    if not found.keys() >= {"source", "translation"}:
        return None
    source, target = text_of(document, found["source"]), found["translation"]
    kind = document.attributes(target).get("type", "")
    inside = list(children(document, target))
    if source is None or kind in _REMOVED or any(name != "numerusform" for _, name in inside):
        return None
    is_open = kind == _UNFINISHED and not document.plain(target, document.ends[target]).strip()
    if not is_open and not request.retranslate:
        return None
    tag = document.raw(target, target).rstrip("/>").rstrip() + ">"
    pieces = list(_around(document, target, [index for index, _ in inside]))
    pieces[0] = with_attribute(tag, "type", _UNFINISHED) + pieces[0]
    span = document.tokens[target].start, document.tokens[document.ends[target]].end
    numerus = bool(inside) or document.attributes(message).get("numerus") == "yes"
    part = value_part(source, (span,), request.ignore_tags, _write, tuple(pieces), numerus)
    return None if part is None else replace(part, replaces=False)


def _around(document: XmlText, target: int, forms: list[int]) -> Iterator[str]:
    """Yields what is between the tags and the numerus forms of a translation; without forms, two empty texts."""
    if not forms:
        yield from ("", "")
        return
    start = document.tokens[target].end
    for form in forms:
        yield document.text[start : document.tokens[form].start]
        start = document.tokens[document.ends[form]].end
    yield document.text[start : document.tokens[document.ends[target]].start]


def _write(before: str, after: str, pieces: tuple[str, ...], numerus: bool, text: str) -> tuple[str]:
    written = escape(f"{before}{text}{after}")
    return (f"{(f'<numerusform>{written}</numerusform>' if numerus else written).join(pieces)}</translation>",)
