"""Locales that files name become the target language, if a text changes."""

import pytest

from dragoman.serve.documents.document import DocumentRequest
from dragoman.serve.documents.formats import parse_document
from tests.support.cases import cases

CASES = cases(__file__)["a locale becomes the target language if it is that of the source"]


@pytest.mark.parametrize(("name", "text", "before", "after"), CASES)
def test_a_locale_becomes_the_target_language_if_it_is_that_of_the_source(
    name: str, text: str, before: str, after: str
) -> None:
    document = parse_document(name, text.format(before).encode(), DocumentRequest("en", "de"))
    translations = ["X"] * len(document.segments)
    written = document.write(translations).decode()
    unchanged = parse_document(name, text.format(after).encode(), DocumentRequest("en"))
    assert written == unchanged.write(translations).decode()


@pytest.mark.parametrize("source", ["", "auto"])
def test_a_root_with_the_name_of_any_language_is_renamed_if_the_source_is_unknown(source: str) -> None:
    for before, after in (("fr", "de"), ("config", "config")):
        document = parse_document("a.yaml", f"{before}:\n  a: b\n".encode(), DocumentRequest(source, "de"))
        assert document.write(["c"]).decode() == f"{after}:\n  a: c\n"


def test_a_locale_that_yaml_reads_as_no_text_is_quoted() -> None:
    document = parse_document("a.yaml", b"en:\n  a: b\n", DocumentRequest("en", "no"))
    assert document.write(["c"]).decode() == '"no":\n  a: c\n'


@pytest.mark.parametrize(("name", "text", "before"), [case[:3] for case in CASES if case[0] != "a.po"])
def test_a_locale_stays_if_no_text_changes(name: str, text: str, before: str) -> None:
    content = text.format(before).encode()
    document = parse_document(name, content, DocumentRequest("en", "de"))
    assert document.write([segment.text for segment in document.segments]) == content
