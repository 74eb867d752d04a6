"""Cleaning of messages: sentences without mnemonics, and no pair that teaches nothing."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.data.sources.alignment import Pair
from dragoman.model.data.sources.cleaning import PLACEHOLDER, Reason, clean_pair, find_fault


def clean(english: str, other: str, mnemonics: str = "", language: str = "de") -> list[tuple[str, str]]:
    return list(clean_pair(Pair(language, english, other, "document"), mnemonics, Counter()))


@pytest.mark.parametrize(
    ("mnemonics", "english", "german"),
    [
        ("&", "&Open File", "Datei ö&ffnen"),
        ("&", "&&Open File", "Datei öffnen (&O)"),
        ("_", "_Open File", "Datei _öffnen"),
        ("_~", "~Open File", "Datei ~öffnen"),
    ],
)
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


@pytest.mark.parametrize(
    ("english", "german", "reason"),
    [
        ("12:30", "12:30", Reason.EMPTY),
        ("Not translated", "Not translated", Reason.COPY),
        ("a " * 400, "ein " * 400, Reason.LONG),
        ("printer-state.full", "Drucker voll", Reason.CODE),
        ("a = b + (1)", "a = b + (1):", Reason.CODE),
        ("{n, plural, other {files}}", "{n, plural, other {Dateien}}", Reason.CHOICE),
        ("Yes", "Ja, das möchte ich wirklich gern und sofort", Reason.RATIO),
        ("Open {name}", "Öffne {datei}", Reason.PLACEHOLDERS),
        ("Delete %s of %s", "%s löschen", Reason.PLACEHOLDERS),
        ("Open <b>it</b>", "Öffnen Sie es", Reason.PLACEHOLDERS),
        ("Open 12 files", "Öffne 13 Dateien", Reason.NUMBERS),
        (
            "The file could not be opened because it is missing",
            "Le fichier est introuvable et ne peut pas être ouvert",
            Reason.LANGUAGE,
        ),
        ("Open %s and %d%%", "%s und %d%% öffnen", None),
        ("Firefox", "Firefox", None),
    ],
)
def test_the_fault_of_a_pair(english: str, german: str, reason: Reason | None) -> None:
    assert find_fault(english, german, "de") is reason


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
