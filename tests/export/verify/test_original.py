"""`dragoman verify --original` compares golden sentences with the library of the checkpoint."""

from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.export.imports.common import ImportOptions
from dragoman.export.imports.ctranslate2 import import_ctranslate2
from dragoman.export.imports.hugging_face import import_checkpoint
from tests.support.comparisons import write_imported
from tests.support.multilingual import write_ctranslate2, write_mbart50

OPTIONS = ImportOptions(max_source_tokens=60, max_target_tokens=20)
READERS = {"transformers": import_checkpoint, "ctranslate2": import_ctranslate2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint for each library, under its name, and a bundle of each."""
    folder = tmp_path_factory.mktemp("original")
    model = write_mbart50(folder / "transformers")
    pieces = import_checkpoint(folder / "transformers", OPTIONS).tokenizer.source_pieces
    write_ctranslate2(model, pieces, folder / "ctranslate2")
    for library, read in READERS.items():
        write_imported(read(folder / library, OPTIONS), folder / "bundles" / library)
    return folder


def verify(folder: Path, library: str, checkpoint: Path) -> None:
    command_line.run("verify", [str(folder / "bundles" / library), "--original", str(checkpoint)])


@pytest.mark.parametrize("library", READERS)
def test_golden_tokens_are_those_of_the_library(library: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verify(folder, library, folder / library)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines] == [["pass", f"{library},", search] for search in ("greedy", "beam")]


def test_another_checkpoint_fails(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_mbart50(tmp_path / "other", seed=9)
    with pytest.raises(SystemExit, match="failed: transformers, greedy; transformers, beam 4"):
        verify(folder, "transformers", tmp_path / "other")
    assert "first difference" in capsys.readouterr().out


def test_a_missing_library_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.export.verify.original.find_spec", lambda name: name != "transformers" or None)
    with pytest.raises(SystemExit, match="original: requires transformers: pip install transformers"):
        verify(folder, "transformers", folder / "transformers")


def test_without_sentences_and_checkpoint_there_is_nothing_to_verify(bundle_path: Path) -> None:
    with pytest.raises(SystemExit, match="data: missing: expected sentences, or --original"):
        command_line.run("verify", [str(bundle_path)])
