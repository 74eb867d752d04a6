"""Native graphs compute what PyTorch computes, with kernels and with their fallback bodies."""

from pathlib import Path

import numpy as np
import pytest
import torch

from dragoman.export.make_bundle import BundleOptions
from dragoman.export.origin import read_parameters
from dragoman.export.source_model import Exportable
from dragoman.export.verify.reference import rounded
from dragoman.model.data.batches import pad
from dragoman.model.network.transformer import Transformer
from dragoman.model.run import RunFolder
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.bundle.manifest import Precision
from dragoman.serve.native.library import FALLBACK, INSTRUCTIONS_VARIABLE
from dragoman.serve.runtime.attention import HeadAttention
from dragoman.serve.runtime.onnx_runtime import why_no_kernels
from dragoman.serve.runtime.placement import open_sessions
from tests.support import graph_models
from tests.support.comparisons import compare
from tests.support.graph_models import HEADS, MODELS, ROWS, decoded_logits, expected_logits, forced_targets
from tests.support.stepping import logits_of_step
from tests.support.toy import export_model, random_model, random_sources, toy_test_sentences

Exported = tuple[Transformer, Bundle]
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")


@pytest.fixture(scope="module", params=MODELS)
def model(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Transformer:
    """A random model; sources and targets fill more than one block of a cache."""
    options = {**MODELS[request.param], "max_source_tokens": 21, "max_target_tokens": 18}
    return random_model(7, tokenizer.vocabulary_size, **options)


@pytest.fixture(scope="module")
def floats(model: Transformer, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The model in fp32."""
    return export_model(model, tokenizer, tmp_path_factory.mktemp("bundle") / "fp32")


@pytest.fixture(scope="module")
def integers(model: Transformer, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The model in int8."""
    out = tmp_path_factory.mktemp("bundle") / "int8"
    return export_model(model, tokenizer, out, options=BundleOptions("random", precision="int8"))


def test_the_parameters_can_be_read_back_bitwise(model: Transformer, floats: Bundle) -> None:
    read = dict(read_parameters(floats, model.config.d_model))
    for name, value in model.state_dict().items():
        assert torch.equal(read[name][: len(value)], value), name


def test_the_rounded_parameters_can_be_read_back(model: Transformer, integers: Bundle) -> None:
    read = dict(read_parameters(integers, model.config.d_model))
    for name, value in rounded(model).state_dict().items():
        torch.testing.assert_close(read[name][tuple(map(slice, value.shape))], value, rtol=1e-6, atol=0, msg=name)


def test_the_logits_in_fp32_are_those_of_pytorch(model: Transformer, floats: Bundle, mode: str) -> None:
    assert np.abs(decoded_logits(model, open_sessions(floats, "cpu")) - expected_logits(model)).max() < 1e-4, mode


def test_logits_in_int8_are_near_those_of_the_rounded_model(model: Transformer, integers: Bundle, mode: str) -> None:
    """An activation at the edge of two levels may fall to either; most do not."""
    decoded = decoded_logits(model, open_sessions(integers, "cpu"))
    expected = expected_logits(rounded(model))
    by_rounding = np.abs(expected - expected_logits(model))
    apart = np.abs(decoded - expected)
    assert apart.max() <= by_rounding.max(), mode
    assert np.median(apart) < np.median(by_rounding)


def test_fallback_and_kernels_agree(
    model: Transformer, floats: Bundle, integers: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They round alike, so that in int8 only few logits differ by more than the last bits."""
    monkeypatch.delenv(INSTRUCTIONS_VARIABLE, raising=False)
    if reason := why_no_kernels():
        pytest.skip(reason)
    for bundle in (floats, integers):
        kernels = decoded_logits(model, open_sessions(bundle, "cpu"))
        with monkeypatch.context() as patch:
            patch.setenv(INSTRUCTIONS_VARIABLE, FALLBACK)
            fallback = decoded_logits(model, open_sessions(bundle, "cpu"))
        apart = np.abs(kernels - fallback)
        assert np.median(apart) < 1e-4
        assert apart.max() < (1e-4 if bundle is floats else 0.3 * fallback.std())


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_row_is_bitwise_the_same_alone_and_in_a_batch(
    model: Transformer, precision: Precision, request: pytest.FixtureRequest, mode: str
) -> None:
    bundle: Bundle = request.getfixturevalue("floats" if precision == "fp32" else "integers")
    for alone, together in graph_models.decode_alone_and_together(model, open_sessions(bundle, "cpu")):
        assert alone == together, mode


@pytest.fixture(scope="module", params=PRECISIONS)
def aligned(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    model = random_model(9, tokenizer.vocabulary_size, d_model=48, heads=2, decoder_layers=2, max_source_tokens=21)
    out, options = tmp_path_factory.mktemp("bundle") / "aligned", BundleOptions("a", "cpu", request.param, HEADS)
    return model, export_model(model, tokenizer, out, options=options)


@torch.inference_mode()
def test_alignments_are_the_attention_maps_of_pytorch(aligned: Exported, mode: str) -> None:
    """In 8 bits, within rounding."""
    model, bundle = aligned
    eight_bits = bundle.manifest.precision == "int8"
    reference = rounded(model) if eight_bits else model
    sources, targets = random_sources(model, 1, ROWS), forced_targets(model)
    maps = reference.attention_maps(pad(sources), torch.tensor(targets)).numpy()  # [B, L * H, T, S]
    expected = maps[:, [place.layer * model.config.heads + place.head for place in HEADS]]
    longest = expected.shape[3]
    lengths = np.array([len(source) for source in sources], np.int32)
    runtime = open_sessions(bundle, "cpu", aligned=True).runtime(ROWS)
    runtime.encode(pad(sources).numpy(), lengths, [[row] for row in range(ROWS)])
    assert runtime.alignments.shape == (ROWS, len(HEADS), 21)
    for position, column in enumerate(targets.T):
        logits_of_step(runtime, column, np.full(ROWS, position, np.int32), lengths, aligned=True)
        tolerance = 5e-2 if eight_bits else 1e-5
        assert runtime.alignments[:, :, :longest] == pytest.approx(expected[:, :, position], abs=tolerance), mode
        assert not runtime.alignments[:, :, longest:].any()


@torch.inference_mode()
def test_the_attention_of_every_head_is_that_of_pytorch(aligned: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    """In 8 bits, within rounding."""
    monkeypatch.delenv(INSTRUCTIONS_VARIABLE, raising=False)
    if reason := why_no_kernels():
        pytest.skip(reason)
    model, bundle = aligned
    eight_bits = bundle.manifest.precision == "int8"
    reference = rounded(model) if eight_bits else model
    source, target = random_sources(model, 1, 1), forced_targets(model)[:1]
    maps = reference.attention_maps(pad(source), torch.tensor(target)).numpy()[0, :, :-1]  # [L * H, T, S]
    reader = HeadAttention(bundle)
    maps = maps.reshape(reader.layers, reader.heads, *maps.shape[1:])
    tolerance = 5e-2 if eight_bits else 1e-5
    for layer, head in np.ndindex(reader.layers, reader.heads):
        found = reader.read(source[0], target[0, 1:].tolist(), layer, head)
        assert found == pytest.approx(maps[layer, head], abs=tolerance)
    mean = reader.read(source[0], target[0, 1:].tolist(), None, None)
    assert mean == pytest.approx(maps.mean(axis=(0, 1)), abs=tolerance)


def test_alignments_change_no_bit_of_the_logits(aligned: Exported, mode: str) -> None:
    model, bundle = aligned
    plain, told = (open_sessions(bundle, "cpu", aligned=item) for item in (False, True))
    assert decoded_logits(model, plain).tobytes() == decoded_logits(model, told, aligned=True).tobytes(), mode
    assert plain.runtime(ROWS).alignments.size == 0


def test_the_toy_model_translates_token_by_token_like_pytorch(toy_run: RunFolder, toy_bundle: Path, mode: str) -> None:
    comparisons = compare(Bundle.open(toy_bundle), Exportable.of_run(toy_run.load()), toy_test_sentences()[:200])
    assert [comparison.text for comparison in comparisons if not comparison.identical] == [], mode
    assert max(comparison.score_error for comparison in comparisons) < 1e-4
