"""`dragoman export BUNDLE`: a bundle contains the model and can be exported again with other options."""

from pathlib import Path
from shutil import copytree

import numpy as np
import onnx
import pytest
import torch

from dragoman import command_line
from dragoman.export.graphs.native.models import read_native
from dragoman.export.origin import read_bundle
from dragoman.export.verify.reference import rounded
from dragoman.model.errors import RunError
from dragoman.model.network.transformer import Transformer
from dragoman.serve.bundle.bundle import DECODER_FILE, ENCODER_FILE, MANIFEST_FILE, WEIGHTS_FILE, Bundle, write_manifest
from tests.support.bundles import reseal
from tests.support.paths import ROOT
from tests.support.toy import ToyBundles, toy_test_sentences, write_pairs

SHIPPED = sorted(path.parent for path in (ROOT / "bundles").glob(f"*/{MANIFEST_FILE}"))


def test_the_export_of_a_bundle_equals_the_bundle(toy_bundle: Path, tmp_path: Path) -> None:
    command_line.run("export", [str(toy_bundle), "--out", str(tmp_path / "again"), "--name", "toy"])
    first, again = Bundle.open(toy_bundle), Bundle.open(tmp_path / "again")
    assert again.manifest.files == first.manifest.files
    assert again.manifest.model_copy(update={"provenance": first.manifest.provenance}) == first.manifest
    assert again.manifest.provenance.training == first.manifest.provenance.training
    assert again.manifest.provenance.steps == first.manifest.provenance.steps > 0


def test_an_export_states_purpose_license_and_beam_and_the_next_one_keeps_them(
    toy_bundle: Path, tmp_path: Path
) -> None:
    options = [
        "--out",
        str(tmp_path / "first"),
        "--description",
        "sums of words",
        "--license",
        "MIT",
        "--beam-size",
        "4",
    ]
    command_line.run("export", [str(toy_bundle), *options])
    command_line.run("export", [str(tmp_path / "first"), "--out", str(tmp_path / "second")])
    manifests = [Bundle.open(folder).manifest for folder in (toy_bundle, tmp_path / "second")]
    assert [(each.description, each.license, each.beam_size) for each in manifests] == [
        ("", "", 1),
        ("sums of words", "MIT", 4),
    ]


@pytest.fixture(scope="module", name="in_8_bits")
def _in_8_bits(toy_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("rounded") / "int8"
    command_line.run("export", [str(toy_bundle), "--precision", "int8", "--out", str(out)])
    return out


def test_other_options_give_the_same_bundle_as_for_a_run(in_8_bits: Path, toy_bundles: ToyBundles) -> None:
    of_run = toy_bundles("int8")
    for name in (ENCODER_FILE, DECODER_FILE, WEIGHTS_FILE):
        assert (in_8_bits / name).read_bytes() == (of_run / name).read_bytes()


def test_a_bundle_is_verified_against_its_source_bundle(
    in_8_bits: Path, toy_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_pairs(tmp_path, "test", toy_test_sentences()[:2])
    options = ["--data", data, "--sentences", "2", "--invariance-sentences", "2"]
    command_line.run("verify", [str(in_8_bits), "--run", str(toy_bundle), *options])
    assert "PyTorch" in capsys.readouterr().out


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_the_models_of_the_shipped_bundles_can_be_read(path: Path) -> None:
    exportable, samples = read_bundle(path)
    assert len(samples) == len(Bundle.open(path).golden)
    assert exportable.model.vocabulary_size == len(exportable.tokenizer.source_pieces)


def test_a_bundle_in_8_bits_has_the_model_with_rounded_weights(in_8_bits: Path, toy_bundle: Path) -> None:
    exact, of_integers = (read_bundle(path)[0].model for path in (toy_bundle, in_8_bits))
    assert isinstance(exact, Transformer)
    assert isinstance(of_integers, Transformer)
    expected = rounded(exact).state_dict()
    for name, value in of_integers.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-6, atol=0, msg=name)


def test_a_bundle_in_8_bits_can_be_exported_again(in_8_bits: Path, tmp_path: Path) -> None:
    """With the same integers."""
    command_line.run("export", [str(in_8_bits), "--precision", "int8", "--out", str(tmp_path / "again")])
    first, again = Bundle.open(in_8_bits), Bundle.open(tmp_path / "again")
    before, after = (read_native(bundle.decoder_path) for bundle in (first, again))
    integers = [name for name, value in before.items() if value.dtype == np.int8]
    assert integers
    for name in integers:
        np.testing.assert_array_equal(after[name], before[name], err_msg=name)


def test_the_graphs_of_a_gpu_are_refused(states_bundle: Bundle) -> None:
    with pytest.raises(RunError, match="variant: cuda: expected cpu"):
        read_bundle(states_bundle.folder)


def test_a_damaged_bundle_is_refused(toy_bundle: Path, tmp_path: Path) -> None:
    damaged = copytree(toy_bundle, tmp_path / "damaged")
    (damaged / WEIGHTS_FILE).write_bytes(b"")
    with pytest.raises(SystemExit, match=r"^dragoman export: run: .*weights.bin: sha256 is"):
        command_line.run("export", [str(damaged), "--out", str(tmp_path / "out")])


def test_a_graph_without_parameter_names_is_refused(toy_bundle: Path, tmp_path: Path) -> None:
    unnamed = copytree(toy_bundle, tmp_path / "unnamed")
    graph = onnx.load(unnamed / DECODER_FILE, load_external_data=False)
    for tensor in graph.graph.initializer:
        tensor.name = tensor.name[::-1]
    (unnamed / DECODER_FILE).write_bytes(graph.SerializeToString())
    with pytest.raises(RunError, match=r"decoder.0.self_attention.query.weight: "):
        read_bundle(reseal(unnamed))


def test_a_bundle_without_training_configuration_is_refused(toy_bundle: Path, tmp_path: Path) -> None:
    bundle = copytree(toy_bundle, tmp_path / "foreign")
    manifest = Bundle.open(toy_bundle).manifest
    foreign = manifest.provenance.model_copy(update={"training": {"imported_from": "marian"}})
    write_manifest(bundle, manifest.model_copy(update={"provenance": foreign}))
    with pytest.raises(RunError, match="provenance: training: "):
        read_bundle(bundle)
