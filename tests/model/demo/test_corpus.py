"""The corpus command writes parallel files of distinct sentences, and alignments."""

from itertools import islice
from pathlib import Path

import pytest

from dragoman.model.demo.corpus import CorpusCommand, distinct_sentences, write_corpus

SIZES = {"test": 200, "validation": 10, "train": 300}


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


def pairs(corpus: Path, name: str) -> list[tuple[str, str]]:
    return list(zip(lines(corpus / f"{name}.en"), lines(corpus / f"{name}.de"), strict=True))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    write_corpus(folder, 3, SIZES, alignments=True)
    return folder


def test_no_sentence_occurs_twice_in_either_language() -> None:
    english, german = zip(*(text.plain() for text in islice(distinct_sentences(seed=7), 5_000)), strict=True)
    assert len(set(english)) == len(set(german)) == 5_000


def test_the_command_writes_parallel_files(tmp_path: Path) -> None:
    CorpusCommand(out=tmp_path, train_pairs=30, validation_pairs=10, test_pairs=20).cli_cmd()
    written = {file.name: len(lines(file)) for file in tmp_path.iterdir()}
    sizes = {"train": 30, "validation": 10, "test": 20}
    assert written == {f"{split}.{language}": size for split, size in sizes.items() for language in ("en", "de")}


def test_line_by_line_the_files_are_translations(corpus: Path) -> None:
    assert pairs(corpus, "test") == [text.plain() for text in islice(distinct_sentences(seed=3), SIZES["test"])]


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_splits_share_no_sentence(corpus: Path, language: str) -> None:
    assert len({line for split in SIZES for line in lines(corpus / f"{split}.{language}")}) == sum(SIZES.values())


def test_held_out_sentences_do_not_depend_on_other_options(corpus: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path, seed=3, sizes=SIZES | {"train": 5})
    assert lines(tmp_path / "test.de") == lines(corpus / "test.de")


@pytest.mark.parametrize("split", list(SIZES))
def test_alignments_link_words_of_their_lines(corpus: Path, split: str) -> None:
    for (english, german), links in zip(pairs(corpus, split), lines(corpus / f"{split}.align"), strict=True):
        for i, j in (link.split("-") for link in links.split()):
            assert int(i) < len(english.split())
            assert int(j) < len(german.split())


def test_an_interrupted_corpus_leaves_the_old_one_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path, seed=3, sizes={"test": 5, "train": 5})
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr("dragoman.model.demo.corpus.tqdm", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_corpus(tmp_path, seed=4, sizes={"test": 5, "train": 5})
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SystemExit, match=r"out: .*file: expected a folder"):
        CorpusCommand(out=file).cli_cmd()
