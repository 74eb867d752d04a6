"""`dragoman export BUNDLE`: an fp32 bundle contains the model and can be exported again with other options."""

from pathlib import Path
from shutil import copytree

import onnx
import pytest

import dragoman
from export.graphs.to_onnx import TRANSPOSED
from export.origin import read_bundle
from model.errors import RunError
from serve.bundle.bundle import (
    DECODER_FILE,
    ENCODER_FILE,
    MANIFEST_FILE,
    WEIGHTS_FILE,
    Bundle,
    file_hashes,
    write_manifest,
)
from tests.support.paths import ROOT
from tests.support.toy import ToyBundles, toy_test_sentences, write_pairs

SHIPPED = sorted(path.parent for path in (ROOT / "bundles").glob(f"*/{MANIFEST_FILE}"))


def test_the_export_of_a_bundle_equals_the_bundle(toy_bundle: Path, tmp_path: Path) -> None:
    dragoman.run("export", [str(toy_bundle), "--out", str(tmp_path / "again"), "--name", "toy"])
    first, again = Bundle.open(toy_bundle), Bundle.open(tmp_path / "again")
    assert again.manifest.files == first.manifest.files
    assert again.manifest.model_copy(update={"provenance": first.manifest.provenance}) == first.manifest
    assert again.manifest.provenance.training == first.manifest.provenance.training
    assert again.manifest.provenance.steps == first.manifest.provenance.steps > 0


@pytest.fixture(scope="module", name="in_8_bits")
def _in_8_bits(toy_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rounded") / "int8"
    dragoman.run("export", [str(toy_bundle), "--precision", "int8", "--out", str(out)])
    return out


def test_other_options_give_the_same_bundle_as_for_a_run(in_8_bits: Path, toy_bundles: ToyBundles) -> None:
    of_run = toy_bundles("cpu", "int8")
    for name in (ENCODER_FILE, DECODER_FILE, WEIGHTS_FILE):
        assert (in_8_bits / name).read_bytes() == (of_run / name).read_bytes()


def test_a_bundle_is_verified_against_its_source_bundle(
    in_8_bits: Path, toy_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_pairs(tmp_path, "test", toy_test_sentences()[:2])
    options = ["--data", data, "--sentences", "2", "--invariance-sentences", "2"]
    dragoman.run("verify", [str(in_8_bits), "--run", str(toy_bundle), *options])
    assert "PyTorch" in capsys.readouterr().out


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_models_of_the_shipped_bundles_can_be_read(path: Path) -> None:
    exportable, samples = read_bundle(path)
    assert len(samples) == len(Bundle.open(path).golden)
    assert exportable.model.vocabulary_size == len(exportable.tokenizer.source_pieces)


def test_an_8_bit_bundle_is_refused(int8_bundle: Bundle) -> None:
    with pytest.raises(RunError, match="precision: int8: expected fp32"):
        read_bundle(int8_bundle.folder)


def test_recurrent_models_are_refused(recurrent_bundle: Bundle) -> None:
    with pytest.raises(RunError, match="recurrent: expected a Transformer"):
        read_bundle(recurrent_bundle.folder)


def test_a_damaged_bundle_is_refused(toy_bundle: Path, tmp_path: Path) -> None:
    damaged = copytree(toy_bundle, tmp_path / "damaged")
    (damaged / WEIGHTS_FILE).write_bytes(b"")
    with pytest.raises(SystemExit, match=r"^dragoman export: run: .*weights.bin: sha256 is"):
        dragoman.run("export", [str(damaged), "--out", str(tmp_path / "out")])


def test_a_graph_without_parameter_names_is_refused(toy_bundle: Path, tmp_path: Path) -> None:
    """Early bundles do not name the matrices."""
    unnamed = copytree(toy_bundle, tmp_path / "unnamed")
    graph = onnx.load(unnamed / DECODER_FILE, load_external_data=False)
    for tensor in graph.graph.initializer:
        tensor.name = tensor.name.replace(TRANSPOSED, "")[::-1]
    (unnamed / DECODER_FILE).write_bytes(graph.SerializeToString())
    manifest = Bundle.open(toy_bundle).manifest
    write_manifest(unnamed, manifest.model_copy(update={"files": dict(file_hashes(unnamed))}))
    with pytest.raises(RunError, match=r"decoder.0.self_attention.query.weight: "):
        read_bundle(unnamed)


def test_a_bundle_without_training_configuration_is_refused(toy_bundle: Path, tmp_path: Path) -> None:
    bundle = copytree(toy_bundle, tmp_path / "foreign")
    manifest = Bundle.open(toy_bundle).manifest
    foreign = manifest.provenance.model_copy(update={"training": {"imported_from": "marian"}})
    write_manifest(bundle, manifest.model_copy(update={"provenance": foreign}))
    with pytest.raises(RunError, match="provenance: training: "):
        read_bundle(bundle)
