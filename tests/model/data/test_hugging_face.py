"""Hugging Face data sets: every storage form, and errors with their row."""

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub.constants
import pytest

from dragoman.model.data.cleaning import read_training_data
from dragoman.model.data.corpus import Corpus, has_split, read_corpora, read_corpus
from dragoman.model.errors import CorpusError
from tests.support.paths import ROOT

PAIRS = [("a house", "ein Haus"), ("a river", "ein Fluss")]
EXPECTED = Corpus("en", "de", [source for source, _ in PAIRS], [target for _, target in PAIRS])


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables downloads and puts the library's cache into the test's folder."""
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    datasets.disable_progress_bars()


def translations(pairs: list[tuple[Any, Any]]) -> Any:
    return datasets.Dataset.from_dict({"translation": [{"en": source, "de": target} for source, target in pairs]})


def columns(pairs: list[tuple[Any, Any]]) -> Any:
    return datasets.Dataset.from_dict({"en": [source for source, _ in pairs], "de": [target for _, target in pairs]})


def save(data: Any, path: Path) -> str:
    """Saves a Dataset, or a dictionary of them by split; returns the path."""
    (datasets.DatasetDict(data) if isinstance(data, dict) else data).save_to_disk(str(path))
    return str(path)


@pytest.mark.parametrize("make", [translations, columns])
def test_a_saved_data_set_is_read(tmp_path: Path, make: Any) -> None:
    """The text is in a column of translations or in a column per language."""
    path = save(make(PAIRS), tmp_path / "saved")
    assert read_corpus(f"hf:{path}:en-de") == EXPECTED
    assert read_corpus(f"hf:{path}:de-en").sources == EXPECTED.targets


def test_a_column_of_the_type_translation_is_read(tmp_path: Path) -> None:
    features = datasets.Features({"translation": datasets.Translation(["en", "de"])})
    path = save(translations(PAIRS).cast(features), tmp_path / "saved")
    assert read_corpus(f"hf:{path}:en-de") == EXPECTED


def test_the_part_that_is_asked_for_is_read(tmp_path: Path) -> None:
    parts = {"train": PAIRS, "validation": PAIRS[:1], "test": PAIRS[1:]}
    path = save({split: translations(pairs) for split, pairs in parts.items()}, tmp_path / "saved")
    for split, pairs in parts.items():
        assert read_corpus(f"hf:{path}:en-de", split).sources == [source for source, _ in pairs]
        assert has_split(f"hf:{path}:en-de", split)


def test_a_missing_part_is_reported_with_the_existing_ones(tmp_path: Path) -> None:
    path = save({"train": columns(PAIRS), "dev": columns(PAIRS)}, tmp_path / "saved")
    assert not has_split(f"hf:{path}:en-de", "validation")
    with pytest.raises(CorpusError, match=rf"^hf:{path}:en-de: expected one of the parts train, dev, got validation$"):
        read_corpus(f"hf:{path}:en-de", "validation")


def test_a_data_set_without_parts_is_read_whole(tmp_path: Path) -> None:
    specification = f"hf:{save(columns(PAIRS), tmp_path / 'saved')}:en-de"
    assert not has_split(specification, "train")
    assert read_corpus(specification, "validation") == EXPECTED


@pytest.mark.parametrize("suffix", ["csv", "tsv", "json", "jsonl", "parquet", "csv.gz", "jsonl.gz"])
def test_a_table_is_read_by_its_suffix(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"pairs.{suffix}"
    plain = path.with_suffix("") if suffix.endswith(".gz") else path
    match plain.suffix:
        case ".csv":
            columns(PAIRS).to_csv(plain)
        case ".tsv":
            columns(PAIRS).to_csv(plain, sep="\t")
        case ".parquet":
            columns(PAIRS).to_parquet(plain)
        case _:
            translations(PAIRS).to_json(plain)
    if path != plain:
        path.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_corpus(f"hf:{path}:en-de") == EXPECTED


def test_a_folder_of_tables_has_the_parts_that_its_files_name(tmp_path: Path) -> None:
    folder = tmp_path / "tables"
    folder.mkdir()
    columns(PAIRS).to_csv(folder / "train.csv")
    columns(PAIRS[:1]).to_csv(folder / "validation.csv")
    assert read_corpus(f"hf:{folder}:en-de") == EXPECTED
    assert len(read_corpus(f"hf:{folder}:en-de", "validation")) == 1


def test_a_cell_with_na_is_text(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("en,de\nNA,k. A.\nnull,\nnone,keine\n", encoding="utf-8")
    corpus = read_corpus(f"hf:{path}:en-de")
    assert (corpus.sources, corpus.blank_pairs) == (["NA", "none"], 1)


def test_a_line_break_inside_a_text_becomes_a_space(tmp_path: Path) -> None:
    path = save(columns([("one\ntwo", "eins\r\nzwei")]), tmp_path / "saved")
    assert read_corpus(f"hf:{path}:en-de") == Corpus("en", "de", ["one two"], ["eins  zwei"])


MISSING = '{"translation": {"en": "a", "de": "A"}}\n{"translation": {"en": "b", "fr": "B"}}\n'


@pytest.mark.parametrize(
    ("data", "target", "problem"),
    [
        (translations([*PAIRS, ("a lake", None)]), "de", "row 2: de: expected a string, got None"),
        (columns([*PAIRS, ("a lake", None)]), "de", "row 2: de: expected a string, got None"),
        (columns([*PAIRS, ("a\0", "A")]), "de", "row 2: en: .*NUL.*"),
        (translations(PAIRS), "fr", "row 0: .* fr, got en, de"),
        (datasets.Dataset.from_dict({"translation": ["ein Haus"]}), "de", "row 0: translation: .* got 'ein Haus'"),
        (columns(PAIRS), "fr", "expected the columns en and fr, or translation, got en, de"),
        ((".jsonl", MISSING), "de", "row 1: .*(language de, got en, fr|de: .*got None)"),
        ((".txt", "a\tA\n"), "de", r"expected .*\.csv, .*"),
        ((".parquet", "no parquet"), "de", r"cannot be loaded: [^\n]+"),
    ],
    ids=["no text", "no text in a column", "NUL", "language", "translation", "columns", "a row", "kind", "broken"],
)
def test_what_cannot_be_read_is_named_with_its_row(tmp_path: Path, data: Any, target: str, problem: str) -> None:
    path = str(tmp_path / "saved")
    if isinstance(data, tuple):
        suffix, content = data
        path += suffix
        Path(path).write_text(content)
    else:
        save(data, Path(path))
    with pytest.raises(CorpusError, match=rf"^hf:{path}:en-{target}: {problem}$"):
        read_corpus(f"hf:{path}:en-{target}")


@pytest.mark.parametrize("rest", ["opus_books", "opus_books:", ":en-de", "opus_books:en", "opus_books:-de"])
def test_a_specification_that_lacks_a_part_is_refused(rest: str) -> None:
    with pytest.raises(CorpusError, match=r"expected hf:NAME:SOURCE-TARGET or hf:NAME:CONFIG:SOURCE-TARGET$"):
        read_corpus(f"hf:{rest}")


def test_what_cannot_be_fetched_is_explained_in_a_line() -> None:
    with pytest.raises(CorpusError, match=r"^hf:nobody/nothing:en-de: cannot be loaded: [^\n]+$"):
        read_corpus("hf:nobody/nothing:en-de")
    with pytest.raises(CorpusError, match=r"^hf:nobody/nothing:en-de: cannot be loaded: [^\n]+$"):
        has_split("hf:nobody/nothing:en-de", "train")


@pytest.mark.parametrize(
    ("rest", "name", "configuration"), [("org/books:de-en:en-de", "org/books", "de-en"), ("books:en-de", "books", None)]
)
def test_a_data_set_of_the_hub_is_asked_for_by_name_and_configuration(
    monkeypatch: pytest.MonkeyPatch, rest: str, name: str, configuration: str | None
) -> None:
    def load(*arguments: object) -> Any:
        assert arguments == (name, configuration)
        return datasets.DatasetDict({"train": translations(PAIRS)})

    monkeypatch.setattr(datasets, "load_dataset", load)
    assert read_corpora([f"hf:{rest}"]) == [EXPECTED]


def test_the_validation_part_validates(tmp_path: Path) -> None:
    path = save({"train": columns(PAIRS), "validation": columns(PAIRS[:1])}, tmp_path / "saved")
    data = read_training_data([f"hf:{path}:en-de"])
    assert (len(data.training[0].corpus), len(data.validation[0])) == (2, 1)


def test_without_the_library_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(CorpusError, match=r"^hf:x:en-de: .* datasets.*`train`$"):
        read_corpus("hf:x:en-de")


def test_the_library_is_imported_only_for_its_data() -> None:
    """The import is slow."""
    modules = "dragoman.model.data.corpus, dragoman.model.data.cleaning"
    program = f"import sys, {modules}; assert 'datasets' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
