"""Bundles in 8 bits: their translations, golden sentences and size."""

from pathlib import Path

import pytest

from dragoman.export.make_bundle import MIN_GOLDEN_GAP, BundleOptions, reproduced, write_bundle
from dragoman.export.source_model import Exportable
from dragoman.model.errors import RunError
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import RunFolder
from dragoman.serve.bundle.bundle import WEIGHTS_FILE, Bundle
from tests.support.comparisons import compare
from tests.support.toy import ToyBundles, samples_of, toy_test_sentences


@pytest.fixture(scope="module")
def toy_8_bit_bundle(toy_bundles: ToyBundles) -> Bundle:
    return Bundle.open(toy_bundles("int8"))


def test_a_trained_model_translates_almost_the_same_in_8_bits(toy_run: RunFolder, toy_8_bit_bundle: Bundle) -> None:
    comparisons = compare(toy_8_bit_bundle, Exportable.of_run(toy_run.load()), toy_test_sentences()[:200])
    assert sum(comparison.identical for comparison in comparisons) >= 190
    assert any(comparison.score_error > 1e-5 for comparison in comparisons)


def test_the_golden_sentences_are_those_that_8_bits_reproduce(toy_8_bit_bundle: Bundle) -> None:
    candidates = reproduced(toy_8_bit_bundle)
    assert toy_8_bit_bundle.golden == tuple(candidate.sentence for candidate in candidates)
    assert min(candidate.gap for candidate in candidates) >= MIN_GOLDEN_GAP["int8"]


def test_no_bundle_lacks_golden_sentences(toy_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No server could verify it."""
    monkeypatch.setattr("dragoman.export.graphs.native.layout.MAX_INT8", 1)
    samples = samples_of(toy_test_sentences()[:5])
    with pytest.raises(RunError, match=r"^precision: int8: no en-de "):
        write_bundle(Exportable.of_run(toy_run.load()), samples, tmp_path / "b", BundleOptions("toy", precision="int8"))
    assert list(tmp_path.iterdir()) == []


def test_an_8_bit_bundle_has_a_byte_for_every_weight(toy_run: RunFolder, toy_8_bit_bundle: Bundle) -> None:
    """Tied embeddings are stored once; scales, biases and positions are float32."""
    model = toy_run.load().model
    assert isinstance(model, Transformer)
    matrices = [parameter for parameter in model.parameters() if parameter.dim() > 1]
    others = sum(parameter.numel() for parameter in model.parameters() if parameter.dim() == 1)
    floats = others + sum(len(matrix) for matrix in matrices) + model.source_positions.table.numel()
    stored_bytes = (toy_8_bit_bundle.folder / WEIGHTS_FILE).stat().st_size
    # Native weights also have an offset and a bias per output, and every weight begins at a multiple of 64 bytes.
    padding = 12 * sum(map(len, matrices)) + 64 * 4 * len(matrices)
    assert stored_bytes <= sum(matrix.numel() for matrix in matrices) + 4 * floats + padding
