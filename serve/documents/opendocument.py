"""OpenDocument texts and presentations: each stretch of a paragraph is a segment; styles and all other members stay.

A tab, a line break, a note or a frame divides a paragraph. Comments and deleted text are not translated.
"""

import re
from collections.abc import Iterator

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.inline import Inline, Item, ItemKind
from dragoman.serve.documents.office import PackedDocument, read_members
from dragoman.serve.documents.package import ENCRYPTED, Package
from dragoman.serve.documents.splice import Part
from dragoman.serve.documents.stretches import Piece, Role, stretches
from dragoman.serve.documents.xml import XmlText, any_inside, escape
from dragoman.serve.protect.markup.tokens import Kind, names

_CONTENT = "content.xml"
# Headers and footers are in the styles.
_MEMBERS = (_CONTENT, "styles.xml")
# Charts are documents of their own.
_OBJECT, _CHART = re.compile(r"[^/]+/content\.xml"), b"<office:chart"
_MANIFEST, _ENCRYPTION, _PACKAGE = "META-INF/manifest.xml", b"encryption-data", "encrypted-package"
_PARAGRAPHS = names("text:p text:h")
_WRAPPERS = names("text:span text:a text:meta")
_BARRIERS = names("text:tab text:line-break text:ruby")
_SKIPPED = names("office:annotation text:tracked-changes")
_SPACE = re.compile(r"[ \t\r\n]+")


def parse_opendocument(content: bytes, request: DocumentRequest) -> Document:
    """Parses an odt or odp file."""
    package = Package(content, request.unpacked_bytes)
    # Encrypted members stand one by one, or in a package of their own.
    if _PACKAGE in package.names or (_MANIFEST in package.names and _ENCRYPTION in package.read(_MANIFEST)):
        raise DocumentError(ENCRYPTED)
    if _CONTENT not in package.names:
        raise DocumentError(f"not a document of this format: no member {_CONTENT}")
    charts = (name for name in package.names if _OBJECT.fullmatch(name) and _CHART in package.read(name))
    members = ((name, _parts) for name in (*_MEMBERS, *charts) if name in package.names)
    return PackedDocument(content, package, read_members(package, members, request))


def _parts(document: XmlText) -> Iterator[Part]:
    reader, index = _OpenDocumentReader(document), 0
    while index < len(document.tokens):
        token = document.tokens[index]
        if token.name in _SKIPPED:
            index = document.ends[index]
        elif token.kind is Kind.START and token.name in _PARAGRAPHS:
            for stretch in stretches(list(reader.pieces(index))):
                part = _part(stretch)
                if part is not None:
                    yield part
        index += 1


class _OpenDocumentReader:
    def __init__(self, document: XmlText) -> None:
        self._document = document
        self._paragraphs = [index for index, token in enumerate(document.tokens) if token.name in _PARAGRAPHS]

    def pieces(self, paragraph: int) -> Iterator[Piece]:
        """Yields the pieces of the paragraph of a start tag."""
        document, index = self._document, paragraph + 1
        while index < document.ends[paragraph]:
            token, last = document.tokens[index], document.ends[index]
            if token.kind is Kind.START and token.name in _WRAPPERS:
                last = index
            role = self._role(index)
            raw = document.raw(index, last) if role not in (Role.TEXT, Role.BARRIER) else ""
            text = _SPACE.sub(" ", document.plain(index, index)) if role is Role.TEXT else ""
            yield Piece(role, token.start, document.tokens[last].end, raw, text)
            index = last + 1

    def _role(self, index: int) -> Role:
        token = self._document.tokens[index]
        if token.kind is Kind.TEXT:
            return Role.TEXT
        if token.name in _WRAPPERS and token.kind is not Kind.EMPTY:
            return Role.OPEN if token.kind is Kind.START else Role.CLOSE
        divides = token.name in _BARRIERS or any_inside(self._paragraphs, index, self._document.ends[index])
        return Role.BARRIER if divides else Role.POINT


def _part(stretch: list[Piece]) -> Part | None:
    items = [
        Item(ItemKind.TEXT, piece.text)
        if piece.role is Role.TEXT
        else Item(ItemKind[piece.role.name], piece.raw, "tag")
        for piece in stretch
    ]
    inline = Inline.of(items)
    if not inline.is_translatable:
        return None
    span = (stretch[0].start, stretch[-1].end)
    return Part(inline.segment, [span], lambda translation: (inline.render(translation, escape),))
