"""Plain text: marks of lists stay."""

import pytest

from dragoman.serve.documents.document import DocumentRequest, Segment
from dragoman.serve.documents.formats import parse_document


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        *((mark, "A dog.") for mark in ("- ", "* ", "1. ", "12) ", "(3) ", "2.3. ", "a) ", "(b) ", "C. ", "iv. ")),
        *((mark, "A dog.") for mark in ("\u2022 ", "\u25aa\t", "  \u2013 ", "- [ ] ", "\ufeff- ", "> > ")),
        *((mark, "A dog.") for mark in ("1.1 ", "VI) ", "# ", ">> ", "\u2192 ", "-> ", "\u2460 ", "*** ")),
        *((mark, "A dog.") for mark in ("[1] ", "\U0001f600 ", "== ")),
        *(("", text) for text in ("-5 degrees", "1.5 kg of tea", "10:30 train", "--help prints it", "e.g. a dog")),
    ],
)
def test_the_mark_of_a_list_is_not_translated(mark: str, text: str) -> None:
    document = parse_document("a.txt", f"{mark}{text} \n".encode(), DocumentRequest())
    assert document.segments == [Segment(text)]
    assert document.write(["Hund"]).decode() == f"{mark}Hund \n"


def test_a_mark_without_a_text_stays() -> None:
    assert parse_document("a.txt", b"a)\n- \nb) \n", DocumentRequest()).segments == []


@pytest.mark.parametrize(
    ("line", "texts"),
    [
        ("Name\tAge of the dog", ["Name", "Age of the dog"]),
        ("Name      Age\t\t7", ["Name", "Age"]),
        ("| a dog | a cat |", ["a dog", "a cat"]),
        ("*** A title ***", ["A title"]),
        ("Name: ______", ["Name:"]),
        *((whole, [whole]) for whole in ("Bonjour !", "A dog.  A cat - or two.", "See https://example.com/a")),
        *((address, []) for address in ("https://example.com/a", "- anna@example.com")),
    ],
)
def test_columns_and_symbols_stay(line: str, texts: list[str]) -> None:
    document = parse_document("a.txt", f"  {line}\r\n".encode(), DocumentRequest())
    assert [segment.text for segment in document.segments] == texts
    assert document.write(texts).decode() == f"  {line}\r\n"
