"""Readers: the texts of small made files of each format, and no other error than that of a broken file."""

import json
import struct
from contextlib import suppress
from itertools import chain
from pathlib import Path

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.data.sources.alignment import READERS, read_file
from dragoman.model.data.sources.readers.fluent import read_ftl
from dragoman.model.data.sources.readers.help_pages import read_help
from dragoman.model.data.sources.readers.manual_pages import read_man
from dragoman.model.data.sources.readers.messages import english_of
from dragoman.model.data.sources.readers.plain_formats import (
    read_dictionary,
    read_json,
    read_mo,
    read_pak,
    read_po,
    read_properties,
)
from dragoman.model.data.sources.readers.scripts import read_diagnostics, read_localize_calls, read_message_list
from dragoman.model.errors import CorpusError
from tests.support.cases import cases

CASES = cases(__file__)

TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)


def catalog() -> polib.POFile:
    file = polib.POFile()
    file.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    file.append(polib.POEntry(msgid="Open", msgstr="Öffnen", msgctxt="dialog|button"))
    plural = {0: "%d soubor", 1: "", 2: "%d souborů"}
    file.append(polib.POEntry(msgid="%d file", msgid_plural="%d files", msgstr_plural=plural))
    file.append(polib.POEntry(msgid="Close", msgstr=""))
    file.append(polib.POEntry(msgid="Save", msgstr="Sichern", flags=["fuzzy"]))
    return file


def test_a_catalog_has_its_translations_with_the_english_text_and_both_forms_of_a_plural(tmp_path: Path) -> None:
    file = catalog()
    file[1].msgstr_plural = {0: "%d soubor", 1: "%d souborů"}
    file.save_as_mofile(str(tmp_path / "a.mo"))
    compiled = read_mo((tmp_path / "a.mo").read_bytes())
    text = read_po(str(file).encode())
    expected = {"Open": "Öffnen", "%d file": "%d soubor", "%d files": "%d souborů"}
    assert {english_of(key): text for key, text in compiled.items()} == expected
    assert compiled == text


def test_fluent_has_values_and_attributes_with_a_text_for_each_variant_and_no_keys_of_keyboards() -> None:
    content: str = CASES["fluent"]
    tabs = {"tabs[one]": "One tab of Dragon", "tabs[other]": "{$count} tabs in Firefox"}
    assert read_ftl(content.encode()) == {"open": "Open {$file}", "open.title": "Open", **tabs}


def test_a_reference_to_a_brand_in_a_case_is_no_plain_name() -> None:
    assert "Firefox" not in read_ftl(b'open = S { -brand-short-name(case: "instrumental") }\n')["open"]


def test_properties_have_escapes_continued_lines_and_comments() -> None:
    content = "# comment\nopen = \\u00d6ffnen\nlong=one \\\n   two\nkey\\ with\\:marks: value = 1\n! comment\nempty=\n"
    expected = {"open": "Öffnen", "long": "one two", "key with:marks": "value = 1", "empty": ""}
    assert read_properties(content.encode()) == expected


@given(st.lists(TEXTS))
def test_properties_written_with_escapes_are_read_back(texts: list[str]) -> None:
    def escaped(text: str) -> str:
        return "".join(f"\\u{unit:04x}" for (unit,) in struct.iter_unpack(">H", text.encode("utf-16-be")))

    content = "".join(f"k{number}={escaped(text)}\n" for number, text in enumerate(texts))
    assert read_file("properties", content.encode(), "") == {f"k{number}": text for number, text in enumerate(texts)}


def test_the_key_of_a_json_text_is_its_path() -> None:
    assert read_json(b'{"a": {"b": "x", "c": ["y", 1, null]}}') == {"/a/b": "x", "/a/c/0": "y"}


@given(st.dictionaries(st.integers(0, 65535), TEXTS))
def test_a_data_pack_has_its_strings_by_number(strings: dict[int, str]) -> None:
    encoded = {number: text.encode() for number, text in sorted(strings.items())}
    place = 12 + 6 * (len(encoded) + 1)
    entries = b""
    for number, text in encoded.items():
        entries += struct.pack("<HI", number, place)
        place += len(text)
    content = struct.pack("<IB3xHH", 5, 1, len(encoded), 0) + entries + struct.pack("<HI", 0, place)
    assert read_pak(content + b"".join(encoded.values())) == {str(number): text for number, text in strings.items()}


def test_a_data_pack_of_another_version_is_refused() -> None:
    with pytest.raises(CorpusError, match="version 4"):
        read_pak(struct.pack("<IB3xHH", 4, 1, 0, 0))


@given(st.lists(TEXTS, min_size=1))
def test_a_list_in_a_script_has_its_texts_by_place(texts: list[str]) -> None:
    content = f"globalThis.MESSAGES={json.dumps(texts)};"
    assert read_file("list", content.encode(), "") == {str(place): text for place, text in enumerate(texts)}


def test_half_a_character_is_replaced() -> None:
    assert read_file("json", b'["a\\ud800b"]', "") == {"/0": "a\ufffdb"}


def test_a_list_in_a_script_may_have_gaps_and_other_quotes() -> None:
    assert read_message_list(b"var all = [\n\tundefined,\n\t'it\\'s',\n\t\"\\xd6l\",\n];") == {"1": "it's", "2": "Öl"}


def test_calls_of_programs_have_english_texts() -> None:
    program = b"a(localize(12, 'It\\'s')); b(localize2(13, \"Find {0}\")); localize(14, variable); mylocalize(15, 'x')"
    assert read_localize_calls(program) == {"12": "It's", "13": "Find {0}"}
    program = b'  Expected: diag(1005, 1 /* Error */, "_0_expected_1005", "\'{0}\' expected."),'
    assert read_diagnostics(program) == {"/_0_expected_1005": "'{0}' expected."}


def test_blocks_of_help_have_keys_of_ids_places_and_numbers() -> None:
    page = """<html><head><title>no</title></head><body><h1 id="a">Open <b>files</b></h1>
    <ul><li>One</li><li>Two<pre>code</pre></li></ul>
    <p id="b">Press <span hidden class="MAC">Command</span><span>Ctrl</span>+O.<br>Done.</p></body></html>"""
    blocks = {"a/0/3": "Open files", "a/1/3": "One", "a/2/3": "Two", "b/0/2": "Press Ctrl+O.", "b/1/2": "Done."}
    assert read_help(page.encode()) == blocks


def test_help_is_read_in_the_charset_that_it_names() -> None:
    page = '<meta content="text/html; charset=ISO-8859-1"><p id="a">Öl</p>'
    assert read_help(page.encode("latin-1")) == {"a/0/1": "Öl"}


def test_groups_of_help_with_other_numbers_of_blocks_have_no_key_in_common() -> None:
    english = read_help(b'<h1 id="a">One</h1><p>Two</p><h1 id="b">Three</h1>')
    german = read_help(b'<h1 id="a">Eins</h1><p>Zwei</p><p>Mehr</p><h1 id="b">Drei</h1>')
    assert english.keys() & german.keys() == {"b/0/1"}


def test_paragraphs_of_a_manual_page_have_no_macros_and_no_examples() -> None:
    page: str = CASES["a manual page"]
    expected = ["NAME", "ls - list files", "TWO WORDS", "-a, --all do not ignore", "The \u201cend\u201d here."]
    assert list(read_man(page.encode()).values()) == expected


def test_the_dictionary_has_the_first_synonyms_of_equal_numbers_of_forms() -> None:
    lines = "# comment\nHaus {n}; Gebäude {n} | Häuser {pl} :: house [Br.]; building | houses\na | b :: c\n"
    found = read_dictionary(lines.encode())
    assert {english_of(key): text for key, text in found.items()} == {"house": "Haus", "houses": "Häuser"}


@pytest.mark.parametrize("reader", READERS)
@given(content=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_give_texts_or_the_error_of_a_broken_file(reader: str, content: bytes) -> None:
    with suppress(CorpusError):
        for text in chain.from_iterable(read_file(reader, content, "file").items()):
            text.encode()


def test_a_broken_file_is_named() -> None:
    with pytest.raises(CorpusError, match=r"tool\.deb: a\.json: cannot be read: Expecting"):
        read_file("json", b"{", "tool.deb: a.json")
