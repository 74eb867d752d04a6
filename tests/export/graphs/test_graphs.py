"""The graphs of a Transformer compute what PyTorch computes; their files hold no duplicates and no private data."""

import getpass
from collections.abc import Iterator
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from export.graphs.attention import CudaAttention
from export.graphs.graphs import ATTENTION, UnsupportedGraphError, graphs_of
from export.graphs.to_onnx import OPSET, SMALLEST_EXTERNAL_BYTES
from export.make_bundle import BundleOptions
from export.origin import read_parameters
from export.source_model import Exportable
from export.verify.reference import rounded
from model.data.batches import pad
from model.network.recurrent import Recurrent
from model.network.transformer import Transformer
from model.run import RunFolder
from model.tokenizer.tokenizer import BOS_ID, Tokenizer
from serve.bundle.bundle import ALIGNED_DECODER_FILE, DECODER_FILE, ENCODER_FILE, WEIGHTS_FILE, Bundle, BundleError
from serve.bundle.manifest import EIGHT_BITS, AttentionHead, GraphVariant, Precision
from serve.runtime.cpu import Runtime, Sessions
from tests.support.comparisons import compare
from tests.support.paths import ROOT
from tests.support.recurrent_models import EXPORTED, Kind, RecurrentBundles, name_kind
from tests.support.toy import OPTIONS, WIDE, export_model, random_model, random_sources, toy_test_sentences

ROWS = 6
HEADS = (AttentionHead(layer=1, head=1), AttentionHead(layer=0, head=0), AttentionHead(layer=1, head=0))
CPU_VARIANTS: tuple[GraphVariant, ...] = ("cpu", "portable")
# Head sizes 8, 24, 32 and 64, several depths, every option, and inner widths that do not fill vector registers.
PRE_NORM = {"norm_position": "pre", "activation": "gelu", "tie_embeddings": False}
RMS = {"norm": "rms", "activation": "silu", "scale_embeddings": False, "output_bias": True}
MODELS: dict[str, dict[str, Any]] = {
    "the paper's": {"d_model": 16, "d_ff": 47},
    "pre-norm, gelu, untied": {**PRE_NORM, "d_model": 48, "d_ff": 145, "decoder_layers": 2},
    "rms, silu, unscaled, with a bias": {**RMS, "d_model": 128, "d_ff": 384},
    "modern": {**OPTIONS["modern"], "d_ff": 83, "heads": 1},
}

Exported = tuple[Transformer, Bundle]


# An export takes seconds: each model is exported in one variant, the one with the most options in both.
EXPORTS = [*zip(MODELS, cycle(CPU_VARIANTS), strict=False), ("modern", "cpu")]


@pytest.fixture(scope="module", params=EXPORTS, ids="-".join)
def exported(
    request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory
) -> Exported:
    """A random model and its bundle."""
    options, variant = request.param
    model = random_model(7, tokenizer.vocabulary_size, **MODELS[options])
    return model, export_model(
        model, tokenizer, tmp_path_factory.mktemp("bundle") / "random", options=BundleOptions("random", variant)
    )


def test_the_parameters_can_be_read_back_bitwise(exported: Exported) -> None:
    model, bundle = exported
    read = dict(read_parameters(bundle))
    for name, value in model.state_dict().items():
        assert torch.equal(read[name], value), name


@torch.inference_mode()
def largest_difference(model: Transformer | Recurrent, bundle: Bundle) -> float:
    """Returns the largest logit difference over all steps of forced translations."""
    length = model.config.max_target_tokens
    sources = random_sources(model, 1, ROWS)
    random = np.random.default_rng(2)
    targets = random.integers(4, model.vocabulary_size, size=(ROWS, length))
    targets[:, 0] = BOS_ID
    expected = model(pad(sources), torch.tensor(targets)).numpy()  # [B, T, V]
    runtime = Runtime(Sessions.load(bundle, threads=1), slots=ROWS)
    lengths = np.array([len(source) for source in sources], np.int32)
    runtime.encode(pad(sources).numpy(), lengths, np.arange(len(sources)))
    differences = []
    for position in range(length):
        logits = runtime.decode_step(targets[:, position], np.full(ROWS, position, np.int32), lengths)
        differences.append(np.abs(logits - expected[:, position]).max())
    return float(max(differences))


def decode_alone_and_together(model: Transformer, bundle: Bundle) -> Iterator[tuple[bytes, bytes]]:
    """Yields the logits of forced translations by row and step: alone, and in a batch of ROWS."""
    sources = random_sources(model, 3, ROWS)
    targets = np.random.default_rng(4).integers(4, model.vocabulary_size, size=(ROWS, model.config.max_target_tokens))
    lengths = np.array([len(source) for source in sources], np.int32)
    sessions = Sessions.load(bundle, threads=1)
    together = Runtime(sessions, slots=ROWS)
    together.encode(pad(sources).numpy(), lengths, np.arange(len(sources)))
    batched = [
        together.decode_step(column, np.full(ROWS, position, np.int32), lengths).copy()
        for position, column in enumerate(targets.T)
    ]
    for row, source in enumerate(sources):
        alone = Runtime(sessions, slots=1)
        own = slice(row, row + 1)
        alone.encode(pad([source]).numpy(), lengths[own], np.zeros(1, np.int64))
        for position, column in enumerate(targets.T):
            logits = alone.decode_step(column[own], np.full(1, position, np.int32), lengths[own])
            yield logits[0].tobytes(), batched[position][row].tobytes()


def load_graphs(bundle: Bundle, *names: str) -> list[onnx.ModelProto]:
    return [onnx.load(bundle.folder / name, load_external_data=False) for name in names or (ENCODER_FILE, DECODER_FILE)]


def test_the_logits_of_every_step_are_those_of_pytorch(exported: Exported) -> None:
    assert largest_difference(*exported) < 1e-4


def test_the_logits_of_a_wide_model_are_those_of_pytorch(wide_bundle: Bundle) -> None:
    model = random_model(1, wide_bundle.manifest.vocabulary_size, **WIDE)
    assert largest_difference(model, wide_bundle) < 1e-4


@pytest.mark.parametrize("kind", EXPORTED, ids=name_kind)
def test_a_recurrent_model_has_the_logits_of_pytorch_by_standard_operators_and_its_own_weights(
    kind: Kind, recurrent_bundles: RecurrentBundles
) -> None:
    model, bundle = recurrent_bundles(kind)
    assert largest_difference(model, bundle) < 1e-4
    read_bytes = sum(length for _, length in stored_places(bundle, ENCODER_FILE, DECODER_FILE))
    assert read_bytes == (bundle.folder / WEIGHTS_FILE).stat().st_size
    for graph in load_graphs(bundle):
        assert {node.domain for node in graph.graph.node} == {""}
        read = {name for node in graph.graph.node for name in node.input}
        assert {tensor.name for tensor in graph.graph.initializer} <= read


def test_a_row_is_bitwise_the_same_alone_and_in_a_batch(exported: Exported) -> None:
    """For every norm and activation."""
    for alone, together in decode_alone_and_together(*exported):
        assert alone == together


@pytest.mark.parametrize(
    ("options", "kind"), [*zip(MODELS, cycle(product(CPU_VARIANTS, EIGHT_BITS)), strict=False)], ids=str
)
def test_a_row_in_8_bits_is_bitwise_the_same_alone_and_in_a_batch(
    options: str, kind: tuple[GraphVariant, Precision], tokenizer: Tokenizer, tmp_path: Path
) -> None:
    model = random_model(7, tokenizer.vocabulary_size, **MODELS[options])
    bundle = export_model(model, tokenizer, tmp_path / "random", options=BundleOptions("random", *kind))
    for alone, together in decode_alone_and_together(model, bundle):
        assert alone == together


@pytest.fixture(scope="module", params=[("cpu", "fp32"), ("portable", "fp32"), ("cpu", "int8-static")], ids="-".join)
def aligned(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """A random model and a bundle with three alignment heads."""
    model = random_model(9, tokenizer.vocabulary_size, d_model=48, heads=2, decoder_layers=2)
    out = tmp_path_factory.mktemp("bundle") / "aligned"
    variant, precision = request.param
    options = BundleOptions("a", variant, precision, HEADS)
    return model, export_model(model, tokenizer, out, options=options)


@torch.inference_mode()
def test_alignments_are_the_attention_maps_of_pytorch(aligned: Exported) -> None:
    """With 8-bit caches, within rounding."""
    model, bundle = aligned
    manifest = bundle.manifest
    tolerance = 1e-5
    if manifest.precision in EIGHT_BITS:
        model, tolerance = rounded(model, manifest.activation_ranges, manifest.cache_ranges), 1e-2
    sources = random_sources(model, 5, ROWS)
    lengths = np.array([len(source) for source in sources], np.int32)
    targets = np.random.default_rng(6).integers(4, model.vocabulary_size, size=(ROWS, 9))
    maps = model.attention_maps(pad(sources), torch.tensor(targets)).numpy()  # [B, L * H, T, S]
    expected = maps[:, [place.layer * model.config.heads + place.head for place in HEADS]]
    longest = expected.shape[3]
    runtime = Runtime(Sessions.load(bundle, threads=1, aligned=True), slots=ROWS)
    runtime.encode(pad(sources).numpy(), lengths, np.arange(len(sources)))
    for position, column in enumerate(targets.T):
        runtime.decode_step(column, np.full(ROWS, position, np.int32), lengths)
        assert runtime.alignments[:, :, :longest] == pytest.approx(expected[:, :, position], abs=tolerance)
        assert not runtime.alignments[:, :, longest:].any()


def test_alignments_change_no_bit_of_the_logits(aligned: Exported) -> None:
    """The plain decoder does not contain the alignment heads."""
    model, bundle = aligned
    sources = random_sources(model, 7, ROWS)
    lengths = np.array([len(source) for source in sources], np.int32)
    plain, told = (Runtime(Sessions.load(bundle, threads=1, aligned=each), slots=ROWS) for each in (False, True))
    for runtime in (plain, told):
        runtime.encode(pad(sources).numpy(), lengths, np.arange(len(sources)))
    for position in range(9):
        column = np.random.default_rng(position).integers(4, model.vocabulary_size, size=ROWS)
        steps = [each.decode_step(column, np.full(ROWS, position, np.int32), lengths) for each in (plain, told)]
        assert steps[0].tobytes() == steps[1].tobytes()
    assert plain.alignments.size == 0


def stored_places(bundle: Bundle, *names: str) -> set[tuple[int, int]]:
    """Returns the offsets and lengths of the weights that graphs read; smaller ones are inside the graphs."""
    places = set()
    for graph in load_graphs(bundle, *names):
        for tensor in graph.graph.initializer:
            place = {entry.key: entry.value for entry in tensor.external_data}
            if place:
                assert place["location"] == WEIGHTS_FILE
                places.add((int(place["offset"]), int(place["length"])))
            else:
                assert len(tensor.raw_data) < SMALLEST_EXTERNAL_BYTES
    return places


def test_the_decoders_share_their_weights(aligned: Exported) -> None:
    _, bundle = aligned
    assert stored_places(bundle, ALIGNED_DECODER_FILE) == stored_places(bundle, DECODER_FILE)


@pytest.mark.parametrize("head", [AttentionHead(layer=2, head=0), AttentionHead(layer=0, head=2)])
def test_a_missing_head_is_refused(head: AttentionHead, tokenizer: Tokenizer) -> None:
    model = random_model(9, tokenizer.vocabulary_size, d_model=48, heads=2, decoder_layers=2)
    with pytest.raises(UnsupportedGraphError, match=rf"^align: {head}: expected a layer below 2 and a head below 2"):
        graphs_of(model, alignment_heads=(head,))


def test_the_toy_model_translates_token_by_token_like_pytorch(toy_run: RunFolder, toy_bundle: Path) -> None:
    exportable = Exportable.of_run(toy_run.load())
    comparisons = compare(Bundle.open(toy_bundle), exportable, toy_test_sentences()[:200])
    assert [comparison.text for comparison in comparisons if not comparison.identical] == []
    assert max(comparison.score_error for comparison in comparisons) < 1e-4


def test_every_parameter_is_stored_once(exported: Exported) -> None:
    """Including tied embeddings and computed positions."""
    model, bundle = exported
    weights = (bundle.folder / WEIGHTS_FILE).read_bytes()
    embeddings = {model.source_weight, model.target_weight, model.output_weight}
    assert len(embeddings) == (1 if model.config.tie_embeddings else 3)
    for table in (*embeddings, model.source_positions.table, model.target_positions.table):
        content = table.detach().numpy().tobytes()
        if len(content) >= SMALLEST_EXTERNAL_BYTES:
            assert weights.count(content) == 1


def test_both_graphs_read_the_same_bytes_of_shared_weights(exported: Exported) -> None:
    model, bundle = exported
    places = [
        [
            {entry.key: entry.value for entry in tensor.external_data}
            for tensor in graph.graph.initializer
            if tensor.external_data and tuple(tensor.dims) == tuple(model.source_weight.shape)
        ]
        for graph in load_graphs(bundle)
    ]
    if model.config.tie_embeddings:
        assert places[0] == places[1]
        assert len(places[0]) == 1
    else:
        assert [len(places_of_graph) for places_of_graph in places] == [1, 2]
        assert places[0][0] not in places[1]


def test_no_weight_is_stored_that_no_graph_reads(exported: Exported) -> None:
    _, bundle = exported
    read_bytes = sum(length for _, length in stored_places(bundle, ENCODER_FILE, DECODER_FILE))
    assert read_bytes == (bundle.folder / WEIGHTS_FILE).stat().st_size


def test_the_graphs_have_the_names_of_the_manifest(exported: Exported) -> None:
    _, bundle = exported
    signatures = (bundle.manifest.encoder, bundle.manifest.decoder)
    for graph, signature in zip(load_graphs(bundle), signatures, strict=True):
        assert tuple(value.name for value in graph.graph.input) == signature.inputs
        assert tuple(value.name for value in graph.graph.output) == signature.outputs


def test_the_attention_of_the_cuda_graphs_is_that_of_pytorch(
    tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32: the CPU has the same operators."""
    monkeypatch.setitem(ATTENTION, "cpu", CudaAttention)
    model = random_model(7, tokenizer.vocabulary_size, **MODELS["pre-norm, gelu, untied"])
    assert largest_difference(model, export_model(model, tokenizer, tmp_path / "random")) < 1e-4


def test_cuda_graphs_are_fp16_except_for_the_logits(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = random_model(8, tokenizer.vocabulary_size, d_model=48, heads=2)
    options = BundleOptions("random", "cuda", "fp16", HEADS[1:2])
    bundle = export_model(model, tokenizer, tmp_path / "cuda", options=options)
    for graph in load_graphs(bundle):
        kinds = {value.name: value.type.tensor_type.elem_type for value in (*graph.graph.input, *graph.graph.output)}
        states = {name for name in kinds if "key" in name or "value" in name}
        assert {kinds[name] for name in states} == {onnx.TensorProto.FLOAT16}
        assert kinds.get("logits", onnx.TensorProto.FLOAT) == onnx.TensorProto.FLOAT
        assert not {node.op_type for node in graph.graph.node} & {"If", "Loop", "Scan"}
        stored = {tensor.data_type for tensor in graph.graph.initializer if tensor.external_data}
        assert stored == {onnx.TensorProto.FLOAT16}
    with pytest.raises(BundleError, match="variant: cuda"):
        Sessions.load(bundle, threads=1)


@pytest.mark.parametrize(("variant", "precision"), [("cuda", "fp32"), ("cuda", "int8"), ("cpu", "fp16")])
def test_fp16_and_the_variant_cuda_require_each_other(
    variant: GraphVariant, precision: Precision, tokenizer: Tokenizer
) -> None:
    model = random_model(8, tokenizer.vocabulary_size)
    with pytest.raises(UnsupportedGraphError, match=f"^precision: {precision} with the variant {variant}: expected"):
        graphs_of(model, variant, precision)


def test_a_portable_bundle_uses_only_standard_operators(exported: Exported) -> None:
    """Other variants may use operators of ONNX Runtime."""
    domains = {""} if exported[1].manifest.variant == "portable" else {"", "com.microsoft"}
    for graph in load_graphs(exported[1]):
        assert {node.domain for node in graph.graph.node} == domains
        assert next(opset.version for opset in graph.opset_import if not opset.domain) == OPSET


def test_no_path_and_no_name_of_this_machine_is_in_the_bundle(exported: Exported) -> None:
    private = [str(ROOT), str(Path.home()), str(Path(torch.__file__).parent), "site-packages"]
    private += [".py", str(exported[1].folder), getpass.getuser() + "@"]
    for file in exported[1].folder.iterdir():
        content = file.read_bytes()
        assert [word for word in private if word.encode() in content] == [], file.name
