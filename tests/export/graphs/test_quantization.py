"""8-bit graphs compute what a plain reference computes, independent of other rows."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from dragoman.export.graphs.options import UnsupportedGraphError
from dragoman.export.graphs.quantized_layers import QuantizedEmbedding, QuantizedLinear, QuantizedMatrix
from dragoman.export.graphs.transformer import Embedding, frozen
from dragoman.export.make_bundle import MIN_GOLDEN_GAP, BundleOptions, make_bundle, reproduced
from dragoman.export.source_model import Exportable
from dragoman.model.config import RecurrentConfig
from dragoman.model.errors import RunError
from dragoman.model.network.recurrent import Recurrent
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import RunFolder
from dragoman.model.tokenizer.tokenizer import PAD_ID, Tokenizer
from dragoman.serve.bundle.bundle import WEIGHTS_FILE, Bundle
from tests.support.comparisons import compare
from tests.support.one_layer import Array, run_layer, session_of
from tests.support.toy import ToyBundles, export_model, samples_of, toy_test_sentences


def quantize_reference(values: Array) -> tuple[Array, Array]:
    """Rounds each row to multiples of a scale with at most 127 levels."""
    scales = np.maximum(np.abs(values).max(axis=-1, keepdims=True), np.float32(1e-12)) * np.float32(1 / 127)
    return np.round(values / scales), scales


def multiply_reference(states: Array, weight: Array, bias: Array | None) -> Array:
    """Multiplies [M, in] by [out, in] in integers."""
    rows, row_scales = quantize_reference(states)
    columns, column_scales = quantize_reference(weight)
    exact = rows.astype(np.int64) @ columns.T.astype(np.int64)
    result: Array = (exact * row_scales * column_scales.T).astype(np.float32)
    return result if bias is None else result + bias


@pytest.mark.parametrize("bias", [True, False])
def test_a_quantized_layer_multiplies_whole_numbers(bias: bool) -> None:
    torch.manual_seed(1)
    linear = nn.Linear(24, 9, bias=bias)
    session = session_of(QuantizedLinear(linear), torch.randn(3, 24))
    states = np.random.default_rng(2).standard_normal((7, 24)).astype(np.float32)
    states[3] = 0.0
    states[4] *= 1e4
    shift = linear.bias.detach().numpy() if bias else None
    expected = multiply_reference(states, linear.weight.detach().numpy(), shift)
    assert run_layer(session, states) == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_a_neighbor_with_large_activations_changes_no_bit() -> None:
    """One scale per batch would fail."""
    torch.manual_seed(3)
    session = session_of(QuantizedLinear(nn.Linear(64, 40)), torch.randn(2, 64))
    states = np.random.default_rng(4).standard_normal((33, 64)).astype(np.float32)
    states[1::2] *= 1e6
    together = run_layer(session, states)
    assert all(run_layer(session, states[row : row + 1]).tobytes() == together[row].tobytes() for row in range(33))


def test_a_weight_is_at_most_half_a_step_from_its_rounded_value() -> None:
    torch.manual_seed(5)
    weight = torch.randn(6, 50)
    weight[2] = 0.0
    matrix = QuantizedMatrix(weight)
    error = (matrix.quantized * matrix.scales[:, None] - weight).abs()
    assert (error <= matrix.scales[:, None] * 0.5001).all()
    assert matrix.quantized.abs().max() == 127


def test_an_embedding_is_the_rounded_row() -> None:
    torch.manual_seed(6)
    weight = torch.randn(11, 16)
    session = session_of(QuantizedEmbedding(Embedding(frozen(weight), 4.0)), torch.tensor([1, 2, 3]))
    rounded, scales = quantize_reference(weight.numpy())
    ids = np.array([10, 0, 4, 4])
    assert run_layer(session, ids) == pytest.approx((rounded * scales * 4.0)[ids], rel=1e-6)


@pytest.fixture(scope="module", params=["cpu", "portable"])
def toy_8_bit_bundle(request: pytest.FixtureRequest, toy_bundles: ToyBundles) -> Bundle:
    return Bundle.open(toy_bundles(request.param, "int8"))


def test_a_trained_model_translates_almost_the_same_in_8_bits(toy_run: RunFolder, toy_8_bit_bundle: Bundle) -> None:
    comparisons = compare(toy_8_bit_bundle, Exportable.of_run(toy_run.load()), toy_test_sentences()[:200])
    assert sum(comparison.identical for comparison in comparisons) >= 190
    assert any(comparison.score_error > 1e-5 for comparison in comparisons)


def test_the_golden_sentences_are_those_that_8_bits_reproduce(toy_8_bit_bundle: Bundle) -> None:
    candidates = reproduced(toy_8_bit_bundle)
    assert toy_8_bit_bundle.golden == tuple(candidate.sentence for candidate in candidates)
    assert min(candidate.gap for candidate in candidates) >= MIN_GOLDEN_GAP["int8"]


def test_a_model_without_reproduced_golden_sentence_makes_no_bundle(
    toy_run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No server could verify it."""
    monkeypatch.setattr("dragoman.export.graphs.native.layout.MAX_INT8", 1)
    samples = samples_of(toy_test_sentences()[:5])
    with pytest.raises(RunError, match=r"^precision: int8: no en-de "):
        make_bundle(toy_run.load(), samples, tmp_path / "toy", BundleOptions("toy", "cpu", "int8"))
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


def test_recurrent_models_have_no_8_bit_graphs(tokenizer: Tokenizer, tmp_path: Path) -> None:
    config = RecurrentConfig(architecture="recurrent", d_model=16)
    model = Recurrent(config, tokenizer.vocabulary_size, PAD_ID)
    with pytest.raises(UnsupportedGraphError, match="precision: int8: expected fp32"):
        export_model(model, tokenizer, tmp_path / "recurrent", options=BundleOptions("random", precision="int8"))
