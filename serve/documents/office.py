"""Office documents: docx and pptx. Text in all parts with paragraphs is translated, all other members stay."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest, Segment
from dragoman.serve.documents.office_paragraphs import DRAWING, WORD, paragraph_parts
from dragoman.serve.documents.package import Package
from dragoman.serve.documents.splice import Part, Parts, splice
from dragoman.serve.documents.xml import XmlText, decode_xml, local
from dragoman.serve.documents.xml_values import element_part
from dragoman.serve.protect.markup.tokens import Kind, names

# A character of its text may take four bytes, and its translation as many.
MAX_MEMBER_BYTES = 16 << 20
_CONTENT_TYPES = "[Content_Types].xml"
# The text body, and what stands around the page; comments and glossaries stay.
_WORD = re.compile(
    r"wordprocessingml\.(?:document\.main|header|footer|footnotes|endnotes)\+xml|word\.document\.macroEnabled"
)
# Slides and their notes, text boxes of sheets, diagrams and text on charts; layouts and masters stay.
_DRAWING = re.compile(
    r"presentationml\.(?:slide|notesSlide)\+xml|drawingml\.(?:chartshapes|diagramData|diagramDrawing)\+xml"
    r"|officedocument\.drawing\+xml"
)
_CHART = re.compile(r"drawingml\.chart\+xml|chartex\+xml")

ReadParts = Callable[[XmlText], Iterator[Part]]


class PackedDocument:
    """Documents inside of a package. Their texts are read again when they are written: until then, they take memory."""

    def __init__(
        self, content: bytes, package: Package, members: dict[str, Parts], finish: Callable[[bytes], bytes] = bytes
    ) -> None:
        """Stores the parts of members, by their names; `finish` returns what each becomes if any text changes."""
        self._content = content
        self._package = package
        self._members = members
        self._finish = finish

    @property
    def segments(self) -> list[Segment]:
        """The segments of all members."""
        return [segment for parts in self._members.values() for segment in parts.segments]

    def write(self, translations: Sequence[str]) -> bytes:
        """Returns the package with the translations; raises DocumentError if they are too long or cannot be encoded."""
        left, members, is_changed = iter(translations), dict[str, bytes](), False
        for name, parts in self._members.items():
            content = self._package.read(name)
            text, encode = decode_xml(content)
            written = encode(splice(text, parts, list(islice(left, len(parts.segments)))))
            is_changed |= written != content
            if (finished := self._finish(written)) != content:
                members[name] = finished
        return self._package.replace(members) if is_changed else self._content


def read_members(
    package: Package, members: Iterable[tuple[str, ReadParts]], request: DocumentRequest
) -> dict[str, Parts]:
    """Returns the parts by member; raises DocumentError if one is malformed or too large, or texts are too many."""
    read, number = dict[str, Parts](), 0
    for name, read_parts in members:
        try:
            text, _ = decode_xml(package.read(name, MAX_MEMBER_BYTES))
            read[name] = Parts(read_parts(XmlText(text)), request, number)
        except DocumentError as error:
            raise DocumentError(f"{name}: {error}") from error
        number += len(read[name].segments)
    return read


def parse_office(content: bytes, request: DocumentRequest) -> Document:
    """Parses a docx or pptx file."""
    package = Package(content, request.unpacked_bytes)
    members = read_members(package, drawn_members(package), request)
    if not members:
        raise DocumentError("not a document of this format: no part with text")
    return PackedDocument(content, package, members)


def content_types(package: Package) -> Iterator[tuple[str, str]]:
    """Yields the members that have a content type of their own, and the types."""
    text, _ = decode_xml(package.read(_CONTENT_TYPES))
    types = XmlText(text)
    names = set(package.names)
    for index, token in enumerate(types.tokens):
        if token.name.endswith("Override"):
            attributes = types.attributes(index)
            name = attributes.get("PartName", "").removeprefix("/")
            if name in names:
                yield name, attributes.get("ContentType", "")


def drawn_members(package: Package) -> Iterator[tuple[str, ReadParts]]:
    """Yields the members with paragraphs or charts, and what finds their parts."""
    for name, kind in content_types(package):
        read = _reader(kind)
        if read is not None:
            yield name, read


def _reader(kind: str) -> ReadParts | None:
    """Returns what finds the parts of a content type; None: it has no text."""
    if _CHART.search(kind):
        return _read_chart
    dialect = WORD if _WORD.search(kind) else DRAWING if _DRAWING.search(kind) else None
    return None if dialect is None else partial(paragraph_parts, dialect=dialect)


def _read_chart(document: XmlText) -> Iterator[Part]:
    yield from paragraph_parts(document, DRAWING)
    yield from chart_parts(document)


# Elements with copies of strings, in both kinds of charts. Numbers and formulas have others.
_STRINGS = names("strCache strLit multiLvlStrCache strDim")
_VALUES = names("v pt")
_NAME, _NAMED = "v", names("tx txData")


def chart_parts(document: XmlText) -> Iterator[Part]:
    """Yields the parts of the strings of a chart; its paragraphs are others."""
    # Names of open elements, and the number of those with strings.
    levels, strings = list[str](), 0
    for index, token in enumerate(document.tokens):
        name = local(token.name)
        if token.kind is Kind.START:
            named = name == _NAME and levels and levels[-1] in _NAMED
            part = element_part(document, index, DocumentRequest()) if named or (strings and name in _VALUES) else None
            if part is not None:
                yield part
            levels.append(name)
            strings += name in _STRINGS
        elif token.kind is Kind.END:
            strings -= levels.pop() in _STRINGS
