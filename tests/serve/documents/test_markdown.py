"""Markdown: what stays although CommonMark reads it as text."""

import pytest

from dragoman.serve.documents.document import DocumentRequest, Segment
from dragoman.serve.documents.formats import parse_document
from tests.support.cases import cases

CASES = cases(__file__)


def translate(text: str, *ignore_tags: str) -> tuple[list[str], str]:
    """Returns the texts of a document, and the document with the plain ones in capitals."""
    document = parse_document("a.md", text.encode(), DocumentRequest("en", "de", ignore_tags=ignore_tags))
    texts = [segment.text for segment in document.segments]
    assert document.write(texts) == text.encode()
    return texts, document.write([_upper(segment) for segment in document.segments]).decode()


def _upper(segment: Segment) -> str:
    return segment.text.upper() if segment.format == "text" else segment.text


@pytest.mark.parametrize(("text", "written"), CASES["marks of notes and definitions stay"])
def test_marks_of_notes_and_definitions_stay(text: str, written: str) -> None:
    assert translate(text)[1] == written


@pytest.mark.parametrize("text", CASES["formulas and lines of markup have no text"])
def test_formulas_and_lines_of_markup_have_no_text(text: str) -> None:
    assert translate(text)[0] == []
    assert translate(f"Before\n{text}\nAfter\n")[0] == ["Before", "After"]


@pytest.mark.parametrize(("text", "segment"), CASES["formulas and code are kept text"])
def test_formulas_and_code_are_kept_text(text: str, segment: str) -> None:
    assert translate(text)[0][0] == segment


def test_elements_of_the_request_are_kept_text() -> None:
    texts, _ = translate("A <b>bold</b> *move*.\n\n<p>A <B>bold</B> move</p>\n", "b")
    assert texts == ['A <k id="1">bold</k> <g id="3">move</g>.', 'A <k id="1">bold</k> move']


@pytest.mark.parametrize("start", [": a", "~ a", "::: a", "$$a$$", "!!! a"])
def test_a_translation_begins_no_block(start: str) -> None:
    written = parse_document("a.md", b"Text\n", DocumentRequest()).write([start])
    assert parse_document("a.md", written, DocumentRequest()).segments == [Segment(start)]
