"""`dragoman verify --original` compares golden sentences with the library of the checkpoint."""

import sys
from pathlib import Path

import pytest

import dragoman
from export.imports.common import ImportOptions
from export.imports.ctranslate2 import import_ctranslate2
from export.imports.golden import golden_samples
from export.imports.hugging_face import import_checkpoint
from export.make_bundle import BundleOptions, write_bundle
from tests.support.multilingual import write_ctranslate2, write_mbart50

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers", "ignore::UserWarning:transformers")
OPTIONS = ImportOptions(max_source_tokens=60, max_target_tokens=20)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A checkpoint for each library."""
    folder = tmp_path_factory.mktemp("original")
    model = write_mbart50(folder / "transformers")
    pieces = import_checkpoint(folder / "transformers", OPTIONS).tokenizer.source_pieces
    write_ctranslate2(model, pieces, folder / "ctranslate2")
    return {library: folder / library for library in ("transformers", "ctranslate2")}


@pytest.mark.parametrize("library", ["transformers", "ctranslate2"])
def test_golden_sentences_have_the_tokens_of_the_library(
    library: str, checkpoints: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = import_checkpoint if library == "transformers" else import_ctranslate2
    exportable = reader(checkpoints[library], OPTIONS)
    write_bundle(exportable, golden_samples(exportable), tmp_path / "b", BundleOptions("mbart"))
    dragoman.run("verify", [str(tmp_path / "b"), "--original", str(checkpoints[library])])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["pass", f"{library},", "greedy", lines[0].split()[3]],
        ["pass", f"{library},", "beam", "4"],
    ]


def test_another_checkpoint_fails(
    checkpoints: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exportable = import_checkpoint(checkpoints["transformers"], OPTIONS)
    write_bundle(exportable, golden_samples(exportable), tmp_path / "b", BundleOptions("mbart"))
    write_mbart50(tmp_path / "other", seed=9)
    with pytest.raises(SystemExit, match="failed: transformers, greedy; transformers, beam 4"):
        dragoman.run("verify", [str(tmp_path / "b"), "--original", str(tmp_path / "other")])
    assert "first difference" in capsys.readouterr().out


def test_a_missing_library_is_named(
    checkpoints: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exportable = import_checkpoint(checkpoints["transformers"], OPTIONS)
    write_bundle(exportable, golden_samples(exportable), tmp_path / "b", BundleOptions("mbart"))
    monkeypatch.setitem(sys.modules, "transformers", None)
    monkeypatch.setattr("export.verify.original.find_spec", lambda name: None if name == "transformers" else name)
    with pytest.raises(SystemExit, match="original: requires transformers: pip install transformers"):
        dragoman.run("verify", [str(tmp_path / "b"), "--original", str(checkpoints["transformers"])])


def test_without_sentences_and_checkpoint_there_is_nothing_to_verify(bundle_path: Path) -> None:
    with pytest.raises(SystemExit, match="data: missing: expected sentences, or --original"):
        dragoman.run("verify", [str(bundle_path)])
