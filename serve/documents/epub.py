"""Books (epub): pages, their titles, the table of contents, and the title of the book are translated.

If any text changes, the language of the book and of its pages becomes the target language.
"""

import posixpath
import re
from collections.abc import Iterator
from functools import partial
from urllib.parse import unquote

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.html import ignored_tags, xhtml_parts
from dragoman.serve.documents.office import PackedDocument, ReadParts, read_members
from dragoman.serve.documents.package import ENCRYPTED, Package
from dragoman.serve.documents.splice import Part
from dragoman.serve.documents.xml import XmlText, decode_xml
from dragoman.serve.documents.xml_values import children, element_part, named_elements
from dragoman.serve.protect.markup.tokens import names

_CONTAINER, _ENCRYPTION = "META-INF/container.xml", "META-INF/encryption.xml"
_PAGE, _CONTENTS = "application/xhtml+xml", "application/x-dtbncx+xml"
_ROOT_FILE, _ITEM = names("rootfile"), names("item")
_TITLES, _LABELS = names("title description"), names("docTitle navLabel")
# Where a page and the description of a book name their languages.
_PLACE = re.compile(r"<(?:[\w.-]+:)?html\s[^<>]*>|<dc:language[^<>]*>[^<]*<")
_LANGUAGE = re.compile(r"(\b(?:xml:)?lang\s*=\s*[\"']|language[^<>]*>\s*)([A-Za-z0-9-]+)")


def parse_epub(content: bytes, request: DocumentRequest) -> Document:
    """Parses a book; raises DocumentError if its pages are encrypted or not well-formed."""
    package = Package(content, request.unpacked_bytes)
    members = dict(_members(package, request))
    encryption = unquote(package.read(_ENCRYPTION).decode(errors="replace")) if _ENCRYPTION in package.names else ""
    if any(f'"{name}"' in encryption for name in members):
        raise DocumentError(ENCRYPTED)
    parts = read_members(package, members.items(), request)
    return PackedDocument(content, package, parts, partial(_set_language, request=request))


def _members(package: Package, request: DocumentRequest) -> Iterator[tuple[str, ReadParts]]:
    """Yields the members with text, and what finds their parts."""
    book = next((found.get("full-path", "") for found in _attributes(package, _CONTAINER, _ROOT_FILE)), "")
    yield book, partial(_titles, request=request)
    for found in _attributes(package, book, _ITEM):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(book), unquote(found.get("href", ""))))
        kind = found.get("media-type") if name in package.names else ""
        if kind == _PAGE:
            yield name, lambda page: xhtml_parts(page.text, ignored_tags(request))
        elif kind == _CONTENTS:
            yield name, partial(_labels, request=request)


def _attributes(package: Package, name: str, wanted: frozenset[str]) -> Iterator[dict[str, str]]:
    document = XmlText(decode_xml(package.read(name))[0])
    return map(document.attributes, named_elements(document, wanted))


def _titles(document: XmlText, request: DocumentRequest) -> Iterator[Part]:
    return filter(None, (element_part(document, index, request) for index in named_elements(document, _TITLES)))


def _labels(document: XmlText, request: DocumentRequest) -> Iterator[Part]:
    texts = (text for label in named_elements(document, _LABELS) for text, _ in children(document, label))
    return filter(None, (element_part(document, text, request) for text in texts))


def _set_language(content: bytes, request: DocumentRequest) -> bytes:
    """Returns a member with the target language in place of that of the source."""
    text, encode = decode_xml(content)

    def change(found: re.Match[str]) -> str:
        is_source = request.needs_target(found[2]) and request.is_of_source(found[2])
        return f"{found[1]}{request.target if is_source else found[2]}"

    return encode(_PLACE.sub(lambda place: _LANGUAGE.sub(change, place[0]), text))
