"""Terms of a sentence: no term is lost, whatever the model returns, and what is there already stays."""

import re
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.protect.terms.matching import TermIndex
from dragoman.serve.protect.terms.sentence_terms import (
    AppliedTerm,
    Prefix,
    SentenceTerms,
    TermWay,
    TextTerms,
    follow_terms,
)
from tests.support.markup import WORDS, shuffled, tokens_of

NOTHING = Alignment((), (), (), ())
PRESENT, DECODED, PLACED = TermWay.PRESENT, TermWay.DECODED, TermWay.PLACED


def terms_of(text: str, *entries: Entry) -> SentenceTerms:
    terms = TextTerms((TermIndex(entries),)).of_sentence(text, None)
    assert terms is not None
    return terms


def aligned(text: str, translation: str, *links: tuple[int, int]) -> tuple[str, Alignment]:
    """Returns a translation; each link has the indices of a word of the text and of one of the translation."""
    source, target = tokens_of(text), tokens_of(translation)
    weights = [[float((left, right) in links) for left in range(len(source))] for right in range(len(target))]
    return translation, Alignment.of(source, target, np.array(weights))


def place(terms: SentenceTerms, translation: str, alignment: Alignment) -> tuple[str, list[AppliedTerm]]:
    text, changed, applied = terms.place(translation, alignment, ())
    assert all(span.end <= len(text) for span in changed.target)
    return text, list(applied)


ENTRIES = (
    Entry("ab", ("xx", "xxe")),
    Entry("cd", ("yy zz", "yy")),
    Entry("Fg", ("Fg",)),
    Entry("ab cd", ("ww",), match_case=True),
    Entry("ij", ("C++", "xx")),
    Entry("h2", ("h2", "ab")),
)
SENTENCES = st.lists(st.sampled_from([*WORDS, "AB", "xx", "yy", ",", "."]), min_size=1, max_size=12).map(" ".join)


@settings(max_examples=150, deadline=None)
@given(text=SENTENCES, seed=st.integers(0, 99), noise=st.sampled_from([0.0, 0.5, 1.0]), lost=st.integers(0, 12))
def test_no_term_is_lost(text: str, seed: int, noise: float, lost: int) -> None:
    terms = TextTerms((TermIndex(ENTRIES),)).of_sentence(text, None)
    if terms is None:
        return
    translation, alignment = shuffled(seed, noise)(text)
    translation = re.sub(r"\w+", lambda word: word[0] if word.start() % 13 >= lost else "q" * len(word[0]), translation)
    completed, applied = place(terms, translation, alignment)
    assert [item.source for item in applied] == [match.entry.source for match in terms.matches]
    assert not Counter(item.target for item in applied) - Counter(
        {item.target: len(re.findall(rf"(?<!\w){re.escape(item.target)}(?!\w)", completed)) for item in applied}
    )
    assert not terms.lacking(completed, NOTHING) or noise or {"xx", "ab"} & set(completed.split())
    if all(item.way is PRESENT for item in applied):
        assert completed == translation


@pytest.mark.parametrize("translation", ["foo bar", "xx bar", "xx ", ""])
def test_a_sentence_that_is_a_term_becomes_a_form_of_it_alone(translation: str) -> None:
    terms = terms_of("ab", Entry("ab", ("xx",)))
    assert terms.lacking(*aligned("ab", translation, (0, 0))) == []
    assert place(terms, *aligned("ab", translation, (0, 0))) == ("xx", [AppliedTerm("ab", "xx", PLACED)])
    assert place(terms, *aligned("ab", "xx", (0, 0))) == ("xx", [AppliedTerm("ab", "xx", PRESENT)])


def test_a_form_that_stands_in_the_translation_stays() -> None:
    terms = terms_of("A house.", Entry("house", ("Gebäude", "Haus")))
    placed = place(terms, *aligned("A house.", "Ein Haus.", (0, 0), (1, 1), (2, 2)))
    assert placed == ("Ein Haus.", [AppliedTerm("house", "Haus", PRESENT)])


@pytest.mark.parametrize(("word", "present"), [("Gebäudes", True), ("Gebäudekomplex", False), ("Gebäude", True)])
def test_an_inflection_counts_and_a_compound_does_not(word: str, present: bool) -> None:
    terms = terms_of("the house", Entry("house", ("Gebäude",)))
    translation = aligned("the house", f"des {word}", (0, 0), (1, 1))
    assert (terms.lacking(*translation) == []) is present


def test_a_term_with_exact_case_counts_no_other_spelling() -> None:
    entry = Entry("US", ("USA",), match_case=True)
    assert terms_of("the US", entry).lacking(*aligned("the US", "die Usa", (0, 0), (1, 1))) == [0]
    assert TextTerms((TermIndex([entry]),)).of_sentence("with us", None) is None


def test_a_term_that_stays_has_the_spelling_of_the_text() -> None:
    terms = terms_of("Use DRAGOMAN now", Entry.of("dragoman"))
    placed = place(terms, *aligned("Use DRAGOMAN now", "Nutze Dolmetscher jetzt", (0, 0), (1, 1), (2, 2)))
    assert placed == ("Nutze DRAGOMAN jetzt", [AppliedTerm("dragoman", "DRAGOMAN", PLACED)])


def test_each_occurrence_needs_a_form_of_its_own() -> None:
    text = "a dog sees a dog"
    terms = terms_of(text, Entry("dog", ("Hund",)))
    translation = aligned(text, "ein Hund sieht einen Dackel", (0, 0), (1, 1), (2, 2), (3, 3), (4, 4))
    assert terms.lacking(*translation) == [1]
    assert place(terms, *translation)[0] == "ein Hund sieht einen Hund"


def test_a_longer_term_does_not_take_the_form_of_a_shorter_one() -> None:
    text = "house boat, house"
    terms = terms_of(text, Entry("house", ("Haus",)), Entry("house boat", ("Haus am See",)))
    translation = aligned(text, "Haus am See, Haus", (0, 0), (1, 2), (2, 3), (3, 4))
    assert [term.target for term in place(terms, *translation)[1]] == ["Haus am See", "Haus"]


def test_a_prefix_ends_with_a_form_at_the_place_of_the_term() -> None:
    text = "A man and a dog."
    terms = terms_of(text, Entry("dog", ("Köter", "Köters")), Entry("man", ("Mann",)))
    translation = aligned(text, "Ein Mann und ein Hund.", (0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 5))
    prefixes = [Prefix("Ein Mann und ein Köter", "Köter"), Prefix("Ein Mann und ein Köters", "Köters")]
    assert terms.prefixes(*translation, ()) == (1, prefixes)
    assert terms.prefixes(*translation, {1}) is None


def test_a_prefix_starts_with_a_capital_as_the_text() -> None:
    terms = terms_of("Dogs bark.", Entry("dogs", ("chiens",)))
    prefixes = terms.prefixes(*aligned("Dogs bark.", "Toutous aboient.", (0, 0), (1, 1), (2, 2)), ())
    assert prefixes == (0, [Prefix("Chiens", "Chiens")])


def test_a_placed_term_starts_with_a_capital_as_the_text_unless_it_stays() -> None:
    for entry, expected in ((Entry("dogs", ("chiens",)), "Chiens aboient."), (Entry.of("dogs"), "dogs aboient.")):
        translation = aligned("The dogs bark.", "Toutous aboient.", (1, 0), (2, 1), (3, 2))
        assert place(terms_of("The dogs bark.", entry), *translation)[0] == expected


def test_a_term_without_aligned_words_stands_at_its_gap() -> None:
    terms = terms_of("I see C++ today", Entry("C++", ("C++",)))
    translation = aligned("I see C++ today", "ich sehe heute", (0, 0), (1, 1), (5, 2))
    assert place(terms, *translation)[0] == "ich sehe C++ heute"


def test_an_empty_translation_gets_the_term() -> None:
    assert place(terms_of("a dog", Entry("dog", ("Hund",))), "", NOTHING)[0] == "Hund"


def test_what_became_of_terms_in_the_pivot_text_is_followed() -> None:
    terms = TextTerms((TermIndex([Entry("Hund", ("chien", "chiens")), Entry.of("Dragoman")]),), traced=True)
    text = "Dragoman der Hund"
    sentence = terms.of_sentence(text, None)
    assert sentence is not None
    translation, alignment = aligned(text, "Dragoman the dog", (0, 0), (1, 1), (2, 2))
    assert sentence.lacking(translation, alignment) == []
    _, _, applied = sentence.place(translation, alignment, ())
    assert [(item.source, item.target) for item in applied] == [("Dragoman", "Dragoman"), ("Hund", "dog")]
    second = follow_terms(applied, terms).of_sentence("Dragoman the dog", None)
    assert second is not None
    last = aligned("Dragoman the dog", "Dragoman le toutou", (0, 0), (1, 1), (2, 2))
    assert place(second, *last)[0] == "Dragoman le chien"
