"""Properties of text formats over generated documents."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serve.documents.document import Document, DocumentError, DocumentRequest
from dragoman.serve.documents.formats import parse_document
from tests.support.attacks.hostile_text import BEGINNINGS, MARKS

# Text that is kept, or a word to translate.
KEPT_OR_WORD = re.compile(r"(<k\b.*?</k>)|dog", re.DOTALL)
WORDS = ("A dog runs. ", "the man", "Zwei H\u00fcte", "\n", "\n\n", "it is 5 > 3 & x")


def documents(suffix: str) -> st.SearchStrategy[bytes]:
    pieces = st.lists(st.sampled_from((*MARKS[suffix], *WORDS)), max_size=12).map("".join)
    return st.builds(lambda first, rest: (first + rest).encode(), st.sampled_from(BEGINNINGS[suffix]), pieces)


def parse(suffix: str, content: bytes) -> Document | None:
    try:
        return parse_document(f"a{suffix}", content, DocumentRequest("en", "de"))
    except DocumentError:
        return None


@pytest.mark.parametrize("suffix", MARKS)
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_document_whose_texts_do_not_change_keeps_every_byte(suffix: str, data: st.DataObject) -> None:
    content = data.draw(documents(suffix))
    document = parse(suffix, content)
    if document is not None:
        assert document.write([segment.text for segment in document.segments]) == content


@pytest.mark.parametrize("suffix", [".txt", ".html"])
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_a_translated_document_has_the_translations_as_texts(suffix: str, data: st.DataObject) -> None:
    document = parse(suffix, data.draw(documents(suffix)))
    if document is not None:
        texts = [KEPT_OR_WORD.sub(lambda part: part[1] or "Hund", segment.text) for segment in document.segments]
        again = parse(suffix, document.write(texts))
        assert again is not None
        assert [segment.text for segment in again.segments] == texts
