"""Files of pairs: what other programs write is read, what is written is read again, what is hostile is refused."""

import tracemalloc
from pathlib import Path

import pytest

from dragoman.serve.documents.pairs import FORMATS, PairsError, PairsFormat, format_of, read_pairs, write_pairs
from dragoman.serve.host.files import FileError
from dragoman.serve.memory.entry import Entry, Pair
from dragoman.serve.memory.tmx import MAX_LEVELS, MAX_TEXT_CHARACTERS
from tests.support.cases import cases

CASES = cases(__file__)
PAIR = Pair("en", "de")
ENTRIES = [Entry("Press <b>Save</b> & go.", "<b>Sichern</b> & los."), Entry('a "q" \\ 3', "ein „q“ \\ 3", "menu")]


def read(content: str | bytes, pairs_format: PairsFormat, part_bytes: int = 7) -> list[Entry]:
    data = content.encode() if isinstance(content, str) else content
    return list(read_pairs((data[at : at + part_bytes] for at in range(0, len(data), part_bytes)), pairs_format, PAIR))


@pytest.mark.parametrize("pairs_format", FORMATS)
def test_what_is_written_is_read_again(pairs_format: PairsFormat) -> None:
    found = read("".join(write_pairs(ENTRIES, pairs_format, PAIR)), pairs_format)
    assert [entry[:2] for entry in found] == [entry[:2] for entry in ENTRIES]
    assert pairs_format in ("tmx", "xliff") or [entry.context for entry in found] == ["", "menu"]


@pytest.mark.parametrize("pairs_format", ["tmx", "xliff"])
def test_xml_has_no_character_that_it_must_not_have(pairs_format: PairsFormat) -> None:
    assert read("".join(write_pairs([Entry("a\ufffe\x07b", "c\uffff")], pairs_format, PAIR)), pairs_format) == [
        Entry("ab", "c")
    ]


def test_xml_has_tags_as_inline_codes() -> None:
    (unit,) = [part for part in write_pairs(ENTRIES[:1], "tmx", PAIR) if part.startswith("<tu>")]
    assert '<seg>Press <ph x="2">&lt;b&gt;</ph>Save<ph x="4">&lt;/b&gt;</ph> &amp; go.</seg>' in unit


@pytest.mark.parametrize(("pairs_format", "content", "expected"), CASES["files of other programs are read"])
def test_files_of_other_programs_are_read(pairs_format: PairsFormat, content: str, expected: list[list[str]]) -> None:
    assert [list(entry[:2]) for entry in read(content, pairs_format)] == expected


def test_the_encoding_of_xml_is_its_own() -> None:
    head = '<?xml version="1.0" encoding="utf-16"?>'
    body = '<tmx><body><tu><tuv xml:lang="en"><seg>ä</seg></tuv><tuv xml:lang="de"><seg>ö</seg></tuv></tu></body></tmx>'
    assert read(f"{head}{body}".encode("utf-16"), "tmx") == [Entry("ä", "ö")]


@pytest.mark.parametrize(("pairs_format", "content", "problem"), CASES["hostile files are refused"])
def test_hostile_files_are_refused(pairs_format: PairsFormat, content: str, problem: str) -> None:
    content = content.replace("LONG", "a" * (MAX_TEXT_CHARACTERS + 1)).replace("DEEP", "<hi>" * MAX_LEVELS)
    with pytest.raises(PairsError, match=problem):
        read(content, pairs_format, 1 << 16)


def test_a_long_file_takes_little_memory() -> None:
    unit = b'<tu><tuv xml:lang="en"><seg>alpha beta</seg></tuv><tuv xml:lang="de"><seg>Alpha</seg></tuv></tu>'
    tracemalloc.start()
    parts = (b"<tmx><body>", *([unit * 500] * 40), b"</body></tmx>")
    count = sum(1 for _ in read_pairs(parts, "tmx", PAIR))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (count, peak < 2 << 20) == (20_000, True)


def test_the_suffix_of_a_file_is_its_format() -> None:
    assert [format_of(Path(f"a.{suffix}")) for suffix in ("TMX", "tsv", "xlf")] == ["tmx", "tsv", "xliff"]
    with pytest.raises(FileError, match=r"a\.doc: expected a name that ends in \.tmx or \.tsv or"):
        format_of(Path("a.doc"))
