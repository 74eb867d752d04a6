"""Selection: held-out parts are whole documents with texts that training does not have."""

from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.data.sources.selection import Row, select_rows, split_by_document

ROWS = [
    Row("source", "help", f"page {page}", f"Text {page} {line}", f"Zeile {page} {line}")
    for page in range(400)
    for line in range(3)
]


def documents(rows: list[Row]) -> set[str]:
    return {row.document for row in rows}


def test_parts_are_whole_documents() -> None:
    parts = split_by_document(ROWS)
    assert all(parts)
    assert sum(map(len, parts)) == len(ROWS)
    assert sum(len(documents(part)) for part in parts) == 400


def test_a_document_is_in_the_same_part_whatever_else_there_is() -> None:
    assert documents(split_by_document(ROWS[::3]).test) == documents(split_by_document(ROWS).test)


def test_a_large_document_is_training_data() -> None:
    name = min(documents(split_by_document(ROWS).test))
    large = [Row("source", "help", name, f"Text {line}", f"Zeile {line}") for line in range(301)]
    assert split_by_document(large).train == large


@given(st.lists(st.tuples(st.integers(0, 300), st.sampled_from(["One", "one", "Two", "Three"])), max_size=60))
def test_no_text_is_in_two_parts(drawn: list[tuple[int, str]]) -> None:
    rows = [Row("source", "help", f"page {page}", english, english.upper()) for page, english in drawn]
    texts = [{row.english.casefold() for row in part} for part in split_by_document(rows)]
    assert sum(map(len, texts)) == len(set().union(*texts))


def test_pairs_occur_once_with_the_three_most_frequent_translations() -> None:
    rows = [Row("source", "help", "page", "Word", other) for other in ["Eins", "Zwei", "Zwei", "Drei", "Vier", "Vier"]]
    assert [row.other for row in select_rows(rows)] == ["Eins", "Zwei", "Vier"]


def test_a_word_with_a_translation_is_no_translation_of_itself() -> None:
    rows = [Row("source", "help", "page", "Close", other) for other in ("Close", "Schließen")]
    rows.append(Row("source", "help", "page", "Firefox", "Firefox"))
    assert [row.other for row in select_rows(rows)] == ["Schließen", "Firefox"]
