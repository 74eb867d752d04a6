"""Resources of .NET (`.resx`): each text is a segment; data of other types, comments and properties of forms stay."""

from collections.abc import Iterator

from dragoman.serve.documents.document import Document, DocumentRequest
from dragoman.serve.documents.splice import SplicedDocument
from dragoman.serve.documents.xml import XmlText
from dragoman.serve.documents.xml_values import children, element_part, read_xml

# Names of objects in a form begin so.
_DESIGNER = ">>"


def parse_resx(content: bytes, request: DocumentRequest) -> Document:
    """Parses a file of resources."""
    document, encode = read_xml(content, "root", ".NET resources")
    parts = (element_part(document, index, request) for index in _values(document))
    return SplicedDocument(document.text, filter(None, parts), encode, request)


def _values(document: XmlText) -> Iterator[int]:
    for data, kind in children(document, document.root):
        attributes = document.attributes(data)
        typed = "type" in attributes or "mimetype" in attributes
        if kind == "data" and not typed and not attributes.get("name", "").startswith(_DESIGNER):
            yield from (index for index, name in children(document, data) if name == "value")
