"""Books: pages, titles and contents are translated, and the language follows."""

from io import BytesIO
from zipfile import ZipFile

import pytest

from dragoman.serve.documents.document import DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from tests.support.packages import EBOOK, zip_of
from tests.support.segments import in_capitals

PAGE = (
    '<?xml version="1.0"?><!DOCTYPE html><html xmlns="http://www.w3.org/1999/xhtml" xml:lang="{0}" lang="{0}"><head>'
    "<title>{1}</title></head><body><p>{2} <i>{3}</i>&#160;x<br/><code>no</code></p></body></html>"
)
NCX = (
    "<ncx><docTitle><text>{}</text></docTitle><docAuthor><text>no</text></docAuthor>"
    "<navLabel><text>{}</text></navLabel></ncx>"
)
MANIFEST = (
    '<item href="toc.ncx" media-type="application/x-dtbncx+xml"/><item href="a.css" media-type="text/css"/></manifest>'
)
REQUEST = DocumentRequest("en", "de")


def book(language: str, *texts: str) -> dict[str, str]:
    title, page_title, one, two, label = texts
    opf = EBOOK["book.opf"].replace("A title", title).replace("</manifest>", MANIFEST)
    return {
        "mimetype": "application/epub+zip",
        **EBOOK,
        "book.opf": opf.replace(">en<", f">{language}<"),
        "page.xhtml": PAGE.format(language, page_title, one, two).replace(" x<", " x<" if title.islower() else " X<"),
        "toc.ncx": NCX.format(title, label),
        "a.css": "no",
    }


TEXTS = ("the book", "page", "one", "two", "label")


def test_a_book_is_translated_with_its_titles_contents_and_language() -> None:
    content = zip_of(book("en", *TEXTS))
    document = parse_document("a.epub", content, REQUEST)
    assert document.write([segment.text for segment in document.segments]) == content
    written = document.write([in_capitals(segment) for segment in document.segments])
    with ZipFile(BytesIO(written)) as file:
        after = {name: file.read(name).decode() for name in file.namelist()}
    expected = book("de", *map(str.upper, TEXTS))
    expected["page.xhtml"] = expected["page.xhtml"].replace("&#160;x", "\u00a0X")
    assert after == expected


def test_another_language_of_a_book_stays() -> None:
    document = parse_document("a.epub", zip_of(book("fr", *TEXTS)), REQUEST)
    written = document.write([in_capitals(segment) for segment in document.segments])
    with ZipFile(BytesIO(written)) as file:
        assert "<dc:language>fr<" in file.read("book.opf").decode()
        assert 'lang="fr"' in file.read("page.xhtml").decode()


@pytest.mark.parametrize(("name", "is_refused"), [("page.xhtml", True), ("font.otf", False)])
def test_a_book_with_encrypted_pages_is_refused(name: str, is_refused: bool) -> None:
    content = zip_of({**book("en", *TEXTS), "META-INF/encryption.xml": f'<e><CipherReference URI="{name}"/></e>'})
    if not is_refused:
        assert parse_document("a.epub", content, REQUEST).segments
        return
    with pytest.raises(DocumentError, match="encrypted with a password"):
        parse_document("a.epub", content, REQUEST)
