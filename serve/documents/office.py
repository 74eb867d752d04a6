"""Office documents: docx and pptx. Text in all parts with paragraphs is translated, all other members stay."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from serve.documents.document import Document, DocumentError, DocumentRequest, Segment
from serve.documents.office_paragraphs import DRAWING, WORD, paragraph_parts
from serve.documents.package import Package
from serve.documents.splice import Part, SplicedDocument
from serve.documents.xml import XmlText, decode_xml

_CONTENT_TYPES = "[Content_Types].xml"
# The text body, and what stands around the page; comments and glossaries stay.
_WORD = re.compile(
    r"wordprocessingml\.(?:document\.main|header|footer|footnotes|endnotes)\+xml|word\.document\.macroEnabled"
)
# Slides and their notes, charts and diagrams; layouts and masters stay.
_DRAWING = re.compile(r"presentationml\.(?:slide|notesSlide)\+xml|drawingml\.(?:chart|diagramData|diagramDrawing)\+xml")

Parts = Callable[[XmlText], Iterator[Part]]


class PackedDocument:
    """Documents inside of a package."""

    def __init__(self, content: bytes, package: Package, documents: dict[str, SplicedDocument]) -> None:
        """Stores the documents, by the names of their members."""
        self._content = content
        self._package = package
        self._documents = documents

    @property
    def segments(self) -> list[Segment]:
        """The segments of all members."""
        return [segment for document in self._documents.values() for segment in document.segments]

    def write(self, translations: Sequence[str]) -> bytes:
        """Returns the package with the translations; a member whose text stays keeps its bytes."""
        left, changed = iter(translations), dict[str, bytes]()
        for name, document in self._documents.items():
            written = document.write(list(islice(left, len(document.segments))))
            if written != self._package.read(name):
                changed[name] = written
        return self._package.replace(changed) if changed else self._content


def read_members(
    package: Package, members: Iterable[tuple[str, Parts]], request: DocumentRequest
) -> dict[str, SplicedDocument]:
    """Returns the documents of members, by their names.

    Raises:
        DocumentError: if one is malformed, or all have more texts than the request allows.
    """
    documents, number = dict[str, SplicedDocument](), 0
    for name, parts in members:
        try:
            text, encode = decode_xml(package.read(name))
            documents[name] = SplicedDocument(text, parts(XmlText(text)), encode, request, number)
        except DocumentError as error:
            raise DocumentError(f"{name}: {error}") from error
        number += len(documents[name].segments)
    return documents


def parse_office(content: bytes, request: DocumentRequest) -> Document:
    """Parses a docx or pptx file."""
    package = Package(content, request.unpacked_bytes)
    documents = read_members(package, _translated(package), request)
    if not documents:
        raise DocumentError("not a document of this format: no part with text")
    return PackedDocument(content, package, documents)


def _translated(package: Package) -> Iterator[tuple[str, Parts]]:
    """Yields the members with text, and what finds their parts."""
    text, _ = decode_xml(package.read(_CONTENT_TYPES))
    types = XmlText(text)
    names = set(package.names)
    for index, token in enumerate(types.tokens):
        if token.name.endswith("Override"):
            attributes = types.attributes(index)
            name, kind = attributes.get("PartName", "").removeprefix("/"), attributes.get("ContentType", "")
            dialect = WORD if _WORD.search(kind) else DRAWING if _DRAWING.search(kind) else None
            if dialect is not None and name in names:
                yield name, partial(paragraph_parts, dialect=dialect)
