"""Entries as files: what is written is read again, and invalid files are refused with the entry."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.serve.glossaries.files import FORMATS, EntriesFormat, read_entries, write_entries
from dragoman.serve.protect.terms.entry import MAX_CHARACTERS, Entry, EntryError, check_entries
from tests.support.cases import cases

CASES = cases(__file__)

TEXTS = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=8)
ENTRY = st.builds(Entry.of, TEXTS, st.lists(TEXTS, min_size=1, max_size=3))
ENTRIES = st.lists(ENTRY, unique_by=lambda entry: entry.source, max_size=6)


@pytest.mark.parametrize("entries_format", FORMATS)
@settings(max_examples=40)
@given(entries=ENTRIES)
def test_what_is_written_is_read_again(entries_format: EntriesFormat, entries: list[Entry]) -> None:
    text = write_entries(entries, entries_format, "en", "de")
    assert list(read_entries(text, entries_format, "en", "de")) == entries


@pytest.mark.parametrize(
    "text", ["\ufeffhouse\tHaus\tHauses\r\n\r\n dog \t Hund \n", "house\tHaus\tHauses\t\ndog\tHund"]
)
def test_tsv_has_a_term_and_its_forms_per_line(text: str) -> None:
    assert read_entries(text, "tsv", "en", "de") == (Entry("house", ("Haus", "Hauses")), Entry("dog", ("Hund",)))


def test_csv_may_quote_separators() -> None:
    text = '"house, old","Haus, ""alt"""\ndog,Hund\n'
    assert read_entries(text, "csv", "en", "de")[0] == Entry("house, old", ('Haus, "alt"',))


def test_a_term_that_is_its_own_translation_stays() -> None:
    (stays,) = read_entries("Dragoman\tDragoman", "tsv", "en", "de")
    assert not stays.translated
    assert stays == Entry.of("Dragoman")


TBX_2: str = CASES["tbx of version 2"]


def test_tbx_has_an_entry_per_concept_and_term() -> None:
    targets = ("Haus", "Heim")
    assert read_entries(TBX_2, "tbx", "en", "de") == (Entry("house", targets), Entry("home & yard", targets))
    assert read_entries(TBX_2, "tbx", "fr", "en") == (Entry("maison", ("house", "home & yard")),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [*CASES["hostile tbx is refused without reading another file"], ("<t>" * 100, "more than 64 levels")],
)
def test_hostile_tbx_is_refused_without_reading_another_file(text: str, problem: str) -> None:
    if problem == "no term":
        assert read_entries(text, "tbx", "en", "de") == ()
    else:
        with pytest.raises(EntryError, match=problem):
            read_entries(text, "tbx", "en", "de")


@pytest.mark.parametrize(
    ("text", "entries_format", "index", "problem"),
    [
        *CASES["an invalid entry is named"],
        (f"{'a' * (MAX_CHARACTERS + 1)}\tb", "tsv", 0, "257 characters"),
        ("a" + "\tb" + "".join(f"\tb{number}" for number in range(16)), "tsv", 0, "17 targets"),
    ],
)
def test_an_invalid_entry_is_named(text: str, entries_format: EntriesFormat, index: int, problem: str) -> None:
    with pytest.raises(EntryError, match=problem) as caught:
        read_entries(text, entries_format, "en", "de")
    assert caught.value.index == index


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(EntryError, match="control character"):
        check_entries([Entry("a", ("\ud800",))])
