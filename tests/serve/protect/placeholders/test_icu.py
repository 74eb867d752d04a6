"""The branches of messages are translated, and their syntax and quotations stay."""

from itertools import chain, pairwise, zip_longest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.protect.markup.elements import MarkupOptions
from dragoman.serve.protect.markup.references import Escaper
from dragoman.serve.protect.markup.sentences import read_document
from dragoman.serve.protect.placeholders.icu import MessageEscaper, find_texts
from dragoman.serve.protect.placeholders.marks import Marker
from dragoman.serve.protect.placeholders.patterns import KINDS, Finder
from tests.support.cases import cases
from tests.support.markup import split

CASES = cases(__file__)


@pytest.mark.parametrize(
    ("text", "texts"),
    [*CASES["branches of messages are translated"], ("{n, plural, other {" * 50, ["{n, plural, other {" * 50])],
)
def test_branches_of_messages_are_translated(text: str, texts: list[str]) -> None:
    assert [text[slice(*span)] for span in find_texts(text)] == texts


@given(st.lists(st.sampled_from(["{", "}", "'", "n", ", plural,", " other ", "#", "a b"]), max_size=20).map("".join))
def test_any_text_is_a_message_or_plain(text: str) -> None:
    assert all(end <= start for (_, end), (start, _) in pairwise(find_texts(text)))


@pytest.mark.parametrize(("text", "read"), CASES["a model reads branches without numbers and with single apostrophes"])
def test_a_model_reads_branches_without_numbers_and_with_single_apostrophes(text: str, read: list[str]) -> None:
    marker = Marker(Finder(KINDS), formatting=False, branching=True)
    document = read_document(text, MarkupOptions("text"), split, marker)
    assert [sentence.text for sentence in document.sentences] == read
    sources = [sentence.source for sentence in document.sentences]
    assert "".join(chain.from_iterable(zip_longest(document.gaps, sources, fillvalue=""))) == text


@pytest.mark.parametrize(("text", "single", "doubled"), CASES["no character of a translation is syntax"])
def test_no_character_of_a_translation_is_syntax(text: str, single: str, doubled: str) -> None:
    plain = Escaper("", (), "", plain=True)
    assert MessageEscaper(plain, doubled=False).escape(text) == single
    assert MessageEscaper(plain, doubled=True).escape(text) == doubled
