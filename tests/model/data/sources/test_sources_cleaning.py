"""Cleaning of messages: sentences without mnemonics, and no pair that teaches nothing."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.data.sources.alignment import Pair
from dragoman.model.data.sources.cleaning import PLACEHOLDER, Reason, clean_pair, find_fault
from tests.support.cases import cases

CASES = cases(__file__)


def clean(english: str, other: str, mnemonics: str = "", language: str = "de") -> list[tuple[str, str]]:
    return list(clean_pair(Pair(language, english, other, "document"), mnemonics, Counter()))


@pytest.mark.parametrize(("mnemonics", "english", "german"), CASES["mnemonics are removed"])
def test_mnemonics_are_removed(mnemonics: str, english: str, german: str) -> None:
    assert clean(english, german, mnemonics) == [("Open File", "Datei öffnen")]


def test_marks_that_are_no_mnemonics_stay() -> None:
    pair = ("Find & replace max_size", "max_size suchen & ersetzen")
    assert clean(*pair, "&_") == [pair]


def test_equal_numbers_of_lines_and_sentences_become_pairs() -> None:
    assert clean("It is late. Go home!\n\nGood night", "Es ist spät. Geh nach Hause!\n\nGute Nacht") == [
        ("It is late.", "Es ist spät."),
        ("Go home!", "Geh nach Hause!"),
        ("Good night", "Gute Nacht"),
    ]


def test_other_numbers_of_sentences_remain_one_pair() -> None:
    pair = ("It is late. Go home!", "Es ist spät, geh nach Hause!")
    assert clean(*pair) == [pair]


def test_tags_of_blocks_end_a_line_and_references_become_characters() -> None:
    assert clean("<p>Save&nbsp;it</p><p>Or <b>not</b></p>", "<p>Speichern</p><p>Oder <b>nicht</b></p>") == [
        ("Save it", "Speichern"),
        ("Or <b>not</b>", "Oder <b>nicht</b>"),
    ]


LONG = ("a " * 400, "ein " * 400, "LONG")


@pytest.mark.parametrize(("english", "german", "reason"), [*CASES["the fault of a pair"], LONG])
def test_the_fault_of_a_pair(english: str, german: str, reason: str | None) -> None:
    assert find_fault(english, german, "de") is (None if reason is None else Reason[reason])


def test_removed_pairs_are_counted() -> None:
    dropped = Counter[Reason]()
    list(clean_pair(Pair("de", "12\nOpen {a}", "12\nÖffne {b}", ""), "", dropped))
    assert dropped == {Reason.EMPTY: 1, Reason.PLACEHOLDERS: 1}


BRACED = ["{0}", "{name}", "{$name}", "{{n}}", "${name}", "$(ARG1)"]


@pytest.mark.parametrize(
    "placeholder", ["%s", "%1$s", "%d", "%(name)s", "%1", *BRACED, "$1", "%S", "%1$S", "<b>", "</a>"]
)
def test_a_placeholder_is_found_whole(placeholder: str) -> None:
    assert PLACEHOLDER.findall(f"one {placeholder} two") == [placeholder]


@given(st.text(max_size=80), st.text(max_size=80), st.sampled_from(["", "&", "_~"]))
def test_what_is_left_has_one_line_without_blank_ends(english: str, other: str, mnemonics: str) -> None:
    for pair in clean(english, other, mnemonics):
        for text in pair:
            assert text == " ".join(text.split())
