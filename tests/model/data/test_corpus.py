"""Reading keeps both sides aligned and reports errors with file and line."""

import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.model.data import corpus as module
from dragoman.model.data.corpus import Corpus, balanced_lines, read_corpora, read_corpus, read_lines
from dragoman.model.errors import CorpusError
from tests.support.cases import cases

CASES = cases(__file__)

# The text has no line feed, and no carriage return, which is part of a line end.
LINE = st.text(st.characters(exclude_characters="\n\r\t\0", exclude_categories=["Cs"]))
PAIRS = st.lists(st.tuples(LINE, LINE), min_size=1)


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def join(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_two_files_are_read_line_by_line(tmp_path: Path, suffix: str) -> None:
    source = write(tmp_path / f"train.en{suffix}", "a\nb\n")
    target = write(tmp_path / f"train.de{suffix}", "A\nB\n")
    corpus = read_corpus(f"files:{source},{target}")
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert (corpus.sources, corpus.targets) == (["a", "b"], ["A", "B"])
    assert len(corpus) == 2


@pytest.mark.parametrize("name", ["pairs.en-de.tsv", "pairs.en-de.tsv.gz", "a.b.en-de", "pairs.en-de.gz"])
def test_one_file_holds_both_sides(tmp_path: Path, name: str) -> None:
    path = write(tmp_path / name, "a b\tA B\nc\tC\n")
    corpus = read_corpus(f"tsv:{path}")
    assert (corpus.source_language, corpus.target_language) == ("en", "de")
    assert (corpus.sources, corpus.targets) == (["a b", "c"], ["A B", "C"])


@given(pairs=PAIRS)
def test_lines_keep_their_translations(tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]) -> None:
    """With any content: U+2028, U+0085, a form feed or a vertical tab do not end a line."""
    folder = tmp_path_factory.getbasetemp()
    pairs = [*pairs, ("last", "letzte")]
    source = write(folder / "any.en", join([source for source, _ in pairs]))
    target = write(folder / "any.de", join([target for _, target in pairs]))
    expected = [pair for pair in pairs if pair[0].strip() and pair[1].strip()]
    corpus = read_corpus(f"files:{source},{target}")
    assert list(zip(corpus.sources, corpus.targets, strict=True)) == expected
    tsv = write(folder / "any.en-de.tsv", join(["\t".join(pair) for pair in pairs]))
    assert read_corpus(f"tsv:{tsv}") == corpus


@pytest.mark.parametrize(("content", "lines"), CASES["a line ends with a line feed alone or that of windows"])
def test_a_line_ends_with_a_line_feed_alone_or_that_of_windows(tmp_path: Path, content: str, lines: list[str]) -> None:
    """The last line need not end."""
    assert read_lines(write(tmp_path / "x", content)) == lines


def test_pairs_with_a_blank_side_are_left_out(tmp_path: Path) -> None:
    source = write(tmp_path / "x.en", "a\n\nc\n \nd\n")
    target = write(tmp_path / "x.de", "A\nB\n\t\nD\nE\n")
    corpus = read_corpus(f"files:{source},{target}")
    assert (corpus.sources, corpus.targets) == (["a", "d"], ["A", "E"])
    assert corpus.blank_pairs == 3


def test_links_belong_to_the_pairs_that_are_left(tmp_path: Path) -> None:
    """In a selection, and in a corpus joined with one that has no links."""
    source, target = write(tmp_path / "train.en", "a b\n\nc\n"), write(tmp_path / "train.de", "A B\nX\nC\n")
    links = write(tmp_path / "train.align", "0-1 1-0\n0-0\n")
    (corpus,) = read_corpora([f"files:{source},{target},{links}", f"files:{source},{target}"])
    assert corpus.links == [{(0, 1), (1, 0)}, {(0, 0)}, set(), set()]
    assert corpus.select([1, 0]).links == [{(0, 0)}, {(0, 1), (1, 0)}]
    assert read_corpus(f"files:{source},{target}").links == []


@pytest.mark.parametrize(("content", "problem"), CASES["links that do not fit the pairs are refused"])
def test_links_that_do_not_fit_the_pairs_are_refused(tmp_path: Path, content: str, problem: str) -> None:
    source, target = write(tmp_path / "train.en", "a\nb\n"), write(tmp_path / "train.de", "A\nB\n")
    links = write(tmp_path / "train.align", content)
    with pytest.raises(CorpusError, match=f"train.align: {problem}"):
        read_corpus(f"files:{source},{target},{links}")


@pytest.mark.parametrize(
    ("english", "german", "problem"), CASES["files of different length or without a pair are refused"]
)
def test_files_of_different_length_or_without_a_pair_are_refused(
    tmp_path: Path, english: str, german: str, problem: str
) -> None:
    source, target = write(tmp_path / "x.en", english), write(tmp_path / "x.de", german)
    with pytest.raises(CorpusError, match=problem):
        read_corpus(f"files:{source},{target}")


@pytest.mark.parametrize(
    ("third", "problem"),
    [(b"b\xe4d\n", r"expected UTF-8: .* at byte 1"), (b"b\0d\n", r".* NUL at byte 1")],
    ids=["UTF-8", "NUL"],
)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_is_no_text_is_named_with_file_and_line(tmp_path: Path, suffix: str, third: bytes, problem: str) -> None:
    """UTF-16 and binary files contain NUL, text does not."""
    path = write(tmp_path / f"x.en{suffix}", b"good\nalso good\n" + third)
    with pytest.raises(CorpusError, match=rf"x\.en{suffix}: line 3: {problem}$"):
        read_lines(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r"x\.en: cannot be read: .*No such file"):
        read_lines(tmp_path / "x.en")


@pytest.mark.parametrize("damage", ["no gzip", "cut", "flipped"])
def test_a_damaged_gzip_file_is_named(tmp_path: Path, damage: str) -> None:
    whole = gzip.compress(join([f"{number} bottles" for number in range(1000)]).encode())
    flipped = bytearray(whole)
    flipped[15] ^= 0xFF
    path = tmp_path / "x.en.gz"
    path.write_bytes({"no gzip": b"plain text", "cut": whole[:-100], "flipped": bytes(flipped)}[damage])
    with pytest.raises(CorpusError, match=r"x\.en\.gz: cannot be read: "):
        read_lines(path)


@pytest.mark.parametrize("line", ["only one", "a\tb\tc", ""])
def test_a_table_with_other_than_two_columns_is_refused(tmp_path: Path, line: str) -> None:
    path = write(tmp_path / "x.en-de.tsv", f"a\tA\n{line}\n")
    columns = line.count("\t") + 1
    problem = rf"x\.en-de\.tsv: line 2: expected source, tab, target, got {columns} columns$"
    with pytest.raises(CorpusError, match=problem):
        read_corpus(f"tsv:{path}")


@pytest.mark.parametrize(
    ("specifications", "problem"),
    [
        pytest.param(*row, id=name)
        for name, row in CASES["a specification without form or languages is refused"].items()
    ],
)
def test_a_specification_without_form_or_languages_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, specifications: str, problem: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for language in ("EN", "english", "e", "e1", "de"):
        write(tmp_path / f"x.{language}", "a\n")
    for specification in specifications.split("|"):
        with pytest.raises(CorpusError, match=problem):
            read_corpus(specification, multi30k_folder=tmp_path)


def test_several_specifications_give_a_corpus_for_each_direction(tmp_path: Path) -> None:
    first = write(tmp_path / "x.en-de.tsv", "a\tA\n")
    second = write(tmp_path / "x.en-fr.tsv", "b\tB\n")
    expected = [Corpus("en", "fr", ["b"], ["B"]), Corpus("en", "de", ["a"], ["A"])]
    assert read_corpora([f"tsv:{second}", f"tsv:{first}"]) == expected


def test_what_several_specifications_hold_of_one_direction_is_joined(tmp_path: Path) -> None:
    first = write(tmp_path / "x.en-de.tsv", "a\tA\n\tB\n")
    second = write(tmp_path / "y.en-de.tsv", "c\tC\n\tD\n")
    assert read_corpora([f"tsv:{first}", f"tsv:{second}"]) == [Corpus("en", "de", ["a", "c"], ["A", "C"], 2)]


def test_files_have_no_parts_and_multi30k_has_three(tmp_path: Path) -> None:
    assert not module.has_split(f"tsv:{tmp_path}/x.en-de.tsv", "train")
    assert not module.has_split("files:train.en,train.de", "validation")
    assert all(module.has_split("multi30k:all", split) for split in ("train", "validation", "test"))


@pytest.mark.parametrize(("text", "specifications"), CASES["specifications are separated by commas"])
def test_specifications_are_separated_by_commas(text: str, specifications: list[str]) -> None:
    """The comma between two files does not separate."""
    assert module.split_specifications(text) == specifications


def corpus_of(source_language: str, target_language: str, pairs: int) -> Corpus:
    return Corpus(
        source_language,
        target_language,
        [f"{source_language} {number}" for number in range(pairs)],
        [f"{target_language} {number}" for number in range(pairs)],
    )


def test_languages_share_the_tokenizers_lines_and_what_a_small_one_leaves_over() -> None:
    for other, counts in (
        (corpus_of("en", "fr", 50), {"en": 20, "de": 20, "fr": 20}),
        (corpus_of("cs", "fr", 5), {"en": 25, "de": 25, "fr": 5, "cs": 5}),
    ):
        lines = balanced_lines([corpus_of("en", "de", 100), other], 60)
        assert Counter(line[:2] for line in lines) == counts


def test_a_line_occurs_once_in_the_tokenizers_training() -> None:
    """In however many directions it occurs."""
    lines = balanced_lines([corpus_of("en", "de", 10), corpus_of("de", "en", 10), corpus_of("en", "fr", 10)], 1000)
    assert sorted(lines) == sorted(f"{language} {number}" for language in ("en", "de", "fr") for number in range(10))


def test_the_tokenizers_lines_are_spread_over_the_corpus() -> None:
    lines = balanced_lines([corpus_of("en", "de", 100)], 8)
    assert lines == [f"{language} {number}" for language in ("en", "de") for number in (0, 25, 50, 75)]


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_few_lines_are_not_exceeded(limit: int) -> None:
    assert len(balanced_lines([corpus_of("en", "de", 100), corpus_of("cs", "fr", 5)], limit)) == limit
