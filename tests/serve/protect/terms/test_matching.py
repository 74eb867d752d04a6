"""Terms in texts: whole words, the longest first, as a slow search over all places finds them."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.protect.terms.matching import Match, TermIndex, UnitText, find_form, find_terms, fold
from tests.support.cases import cases

CASES = cases(__file__)


def find(text: str, *sources: str) -> list[str]:
    entries = [Entry(source, ("x",)) for source in sources]
    return [text[term.start : term.end] for term in find_terms(text, [TermIndex(entries)])]


@pytest.mark.parametrize(("text", "sources", "found"), CASES["terms are whole words and the longest first"])
def test_terms_are_whole_words_and_the_longest_first(text: str, sources: list[str], found: list[str]) -> None:
    assert find(text, *sources) == found


def test_letter_case_counts_if_the_entry_says_so() -> None:
    exact, loose = Entry("US", ("USA",), match_case=True), Entry("us", ("uns",))
    assert [result.entry for result in find_terms("US us Us", [TermIndex([loose, exact])])] == [exact, loose, loose]


def test_a_longer_term_of_a_later_index_counts_and_an_equal_one_does_not() -> None:
    first = Entry("house", ("Haus",))
    longer, equal = Entry("house boat", ("Hausboot",)), Entry("house", ("Gebäude",))
    found = find_terms("house boat, house", [TermIndex([first]), TermIndex([longer, equal])])
    assert [result.entry for result in found] == [longer, first]


LETTERS = "abAB -.é"


def _slow(text: str, entries: list[Entry]) -> list[Match]:
    """Tries every entry at every place."""

    def edge(place: int) -> bool:
        sides = text[max(0, place - 1) : place], text[place : place + 1]
        return not all(side and unicodedata.category(side)[0] in "LN" for side in sides)

    found, position = list[Match](), 0
    while position < len(text):
        found_here = [entry for entry in entries if fold(text[position:]).startswith(fold(entry.source))]
        fits = [entry for entry in found_here if edge(position) and edge(position + len(entry.source))]
        if fits:
            best = max(fits, key=lambda fit: len(fit.source))
            found.append(Match(position, position + len(best.source), best))
            position += len(best.source)
        else:
            position += 1
    return found


@given(st.text(LETTERS, max_size=20), st.lists(st.text(LETTERS, min_size=1, max_size=4), max_size=5))
def test_a_slow_search_finds_the_same(text: str, sources: list[str]) -> None:
    entries = [Entry(source.strip(), ("x",)) for source in sources if source.strip()]
    assert find_terms(text, [TermIndex(entries)]) == _slow(text, entries)


def test_a_form_is_found_as_whole_words() -> None:
    text = UnitText("Das Haus, haus! Hausboot")
    assert list(find_form(text, "Haus", match_case=False)) == [(4, 8), (10, 14)]
    assert list(find_form(text, "Haus", match_case=True)) == [(4, 8)]
    assert list(find_form(text, "us", match_case=False)) == []
