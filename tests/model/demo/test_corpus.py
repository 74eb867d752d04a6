"""The corpus command writes parallel files of distinct sentences, with disjoint splits."""

from itertools import islice
from pathlib import Path

import pytest
from pydantic import ValidationError

from model.demo.corpus import CorpusCommand, distinct_pairs, write_corpus

SIZES = {"test": 20, "validation": 10, "train": 300}


def lines(file: Path) -> list[str]:
    return file.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    CorpusCommand(out=folder, seed=3, train_pairs=300, validation_pairs=10, test_pairs=20).cli_cmd()
    return folder


def test_no_sentence_occurs_twice_in_either_language() -> None:
    english, german = zip(*islice(distinct_pairs(seed=7), 30_000), strict=True)
    assert len(set(english)) == len(set(german)) == 30_000


def test_the_command_writes_parallel_files_and_nothing_else(corpus: Path) -> None:
    written = {file.name: len(lines(file)) for file in corpus.iterdir()}
    assert written == {f"{split}.{language}": size for split, size in SIZES.items() for language in ("en", "de")}


def test_line_by_line_the_files_are_translations(corpus: Path) -> None:
    pairs = list(islice(distinct_pairs(seed=3), 20))
    assert lines(corpus / "test.en") == [pair.english for pair in pairs]
    assert lines(corpus / "test.de") == [pair.german for pair in pairs]


@pytest.mark.parametrize("language", ["en", "de"])
def test_the_splits_share_no_sentence(corpus: Path, language: str) -> None:
    sentences = [line for split in SIZES for line in lines(corpus / f"{split}.{language}")]
    assert len(set(sentences)) == sum(SIZES.values())


def test_held_out_sentences_do_not_depend_on_the_size_of_the_training_data(corpus: Path, tmp_path: Path) -> None:
    write_corpus(tmp_path, seed=3, sizes=SIZES | {"train": 5})
    assert lines(tmp_path / "test.de") == lines(corpus / "test.de")


def test_an_interrupted_corpus_leaves_the_old_one_untouched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path, seed=3, sizes={"test": 5, "train": 5})
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    monkeypatch.setattr("model.demo.corpus.tqdm", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_corpus(tmp_path, seed=4, sizes={"test": 5, "train": 5})
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_a_file_in_the_place_of_the_folder_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SystemExit, match=r"dragoman corpus: out: .*file: expected a folder"):
        CorpusCommand(out=file).cli_cmd()


def test_a_negative_size_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="train_pairs"):
        CorpusCommand(out=tmp_path, train_pairs=-1)
