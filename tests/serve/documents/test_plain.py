"""Plain text: marks of lists stay."""

import pytest

from dragoman.serve.documents.document import DocumentRequest, Segment
from dragoman.serve.documents.formats import parse_document
from tests.support.cases import cases

CASES = cases(__file__)


@pytest.mark.parametrize(("mark", "text"), CASES["the mark of a list is not translated"])
def test_the_mark_of_a_list_is_not_translated(mark: str, text: str) -> None:
    document = parse_document("a.txt", f"{mark}{text} \n".encode(), DocumentRequest())
    assert document.segments == [Segment(text)]
    assert document.write(["Hund"]).decode() == f"{mark}Hund \n"


def test_a_mark_without_a_text_stays() -> None:
    assert parse_document("a.txt", b"a)\n- \nb) \n", DocumentRequest()).segments == []


@pytest.mark.parametrize(("line", "texts"), CASES["columns and symbols stay"])
def test_columns_and_symbols_stay(line: str, texts: list[str]) -> None:
    document = parse_document("a.txt", f"  {line}\r\n".encode(), DocumentRequest())
    assert [segment.text for segment in document.segments] == texts
    assert document.write(texts).decode() == f"  {line}\r\n"
