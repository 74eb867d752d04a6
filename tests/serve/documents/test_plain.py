"""Plain text: marks of lists stay."""

import pytest

from serve.documents.document import DocumentRequest, Segment
from serve.documents.formats import parse_document


@pytest.mark.parametrize(
    ("mark", "text"),
    [
        *((mark, "A dog.") for mark in ("- ", "* ", "1. ", "12) ", "(3) ", "2.3. ", "a) ", "(b) ", "C. ", "iv. ")),
        *(
            (mark, "A dog.")
            for mark in ("\u2022 ", "\u25aa\t", "  \u2013 ", "- [ ] ", "\ufeff- ", "> > ", "1.1 ", "VI) ")
        ),
        *(("", text) for text in ("-5 degrees", "1.5 kg of tea", "10:30 train", "--help prints it", "e.g. a dog")),
    ],
)
def test_the_mark_of_a_list_is_not_translated(mark: str, text: str) -> None:
    document = parse_document("a.txt", f"{mark}{text} \n".encode(), DocumentRequest())
    assert document.segments == [Segment(text)]
    assert document.write(["Hund"]).decode() == f"{mark}Hund \n"


def test_a_mark_without_a_text_stays() -> None:
    assert parse_document("a.txt", b"a)\n- \nb) \n", DocumentRequest()).segments == []
