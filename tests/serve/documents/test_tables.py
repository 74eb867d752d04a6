"""Tables (csv, tsv) and notebooks: what is translated, and that all other bytes stay."""

import json
from typing import Literal

import pytest

from dragoman.serve.documents.csv import Table
from dragoman.serve.documents.document import DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from tests.support.cases import cases
from tests.support.segments import in_capitals

CASES = cases(__file__)
REQUEST = DocumentRequest("en", "de")


@pytest.mark.parametrize(("name", "text", "columns", "expected", "written"), CASES["the dialect of a table stays"])
def test_the_dialect_of_a_table_stays(
    name: str, text: str, columns: list[str], expected: list[str], written: str
) -> None:
    document = parse_document(name, text.encode(), DocumentRequest("en", "de", columns=tuple(columns)))
    assert [segment.text for segment in document.segments] == expected
    assert document.write(expected).decode() == text
    assert document.write([in_capitals(segment) for segment in document.segments]).decode() == written


@pytest.mark.parametrize(("cell", "translation", "formulas", "written"), CASES["formulas of csv"])
def test_a_translation_becomes_no_formula_of_csv(
    cell: str, translation: str, formulas: Literal["escape", "keep"], written: str
) -> None:
    document = parse_document("a.csv", f"x,{cell}".encode(), DocumentRequest("en", "de", csv_formulas=formulas))
    assert isinstance(document, Table)
    for _ in range(2):
        assert document.write(["x", translation]).decode() == written
        assert len(document.notes) == written.count("'")
    assert all(note.startswith("1 cells begin as formulas") for note in document.notes)


@pytest.mark.parametrize("column", ["c", "9" * 5000, "0" * 5000 + "1", "\u0664"])
def test_a_column_that_a_table_lacks_is_refused(column: str) -> None:
    with pytest.raises(DocumentError, match=f"columns: '{column}', expected a name of the first row, or a number"):
        parse_document("a.csv", b"a,b\n", DocumentRequest("en", "de", columns=("a", column)))


def notebook(*lines: str, ensure_ascii: bool = False) -> bytes:
    cells = [
        {"cell_type": "markdown", "metadata": {"source": "no"}, "source": list(lines)},
        {"source": "one\n\n*two*", "cell_type": "markdown"},
        {"cell_type": "code", "source": ["# no"], "outputs": [{"text": ["no"]}]},
    ]
    return json.dumps({"cells": cells, "source": "no"}, indent=1, ensure_ascii=ensure_ascii).encode() + b"\n"


@pytest.mark.parametrize("ensure_ascii", [False, True])
def test_markdown_cells_of_a_notebook_are_translated_and_all_else_stays(ensure_ascii: bool) -> None:
    content = notebook("# T\u00e9\n", "\n", "a **b**\n", "c `no` <br>\n", ensure_ascii=ensure_ascii)
    document = parse_document("a.ipynb", content, REQUEST)
    assert document.write([segment.text for segment in document.segments]) == content
    after = document.write([in_capitals(segment) for segment in document.segments])
    expected = notebook("# T\u00c9\n", "\n", "A **B** C `no` <br>\n", ensure_ascii=ensure_ascii)
    assert after == expected.replace(rb"one\n\n*two*", rb"ONE\n\n*TWO*")


def test_a_notebook_has_at_most_the_texts_of_a_request() -> None:
    with pytest.raises(DocumentError, match="more than 2 texts"):
        parse_document("a.ipynb", notebook("a"), DocumentRequest("en", "de", max_texts=2))
