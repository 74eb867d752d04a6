"""The graphs with states of a Transformer compute what PyTorch computes; their files hold no duplicates."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from dragoman import command_line
from dragoman.export.graphs.graph_files import MIN_EXTERNAL_BYTES
from dragoman.export.graphs.options import UnsupportedGraphError, check_options
from dragoman.export.graphs.to_onnx import states_of
from dragoman.model.data.batches import pad
from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.bundle import WEIGHTS_FILE, Bundle, BundleError
from dragoman.serve.bundle.manifest import AttentionHead, GraphVariant, Precision
from dragoman.serve.runtime.device import DeviceGraphs
from dragoman.serve.runtime.sessions import load_sessions
from tests.support.graph_models import (
    MODELS,
    ROWS,
    assert_named,
    assert_packed,
    decoded_logits,
    expected_logits,
    graphs_of_bundle,
)
from tests.support.stepping import logits_of_step
from tests.support.toy import WIDE, ToyBundles, export_for_cuda, random_model, random_sources

Export = tuple[Transformer, Bundle]


# An export takes seconds for each graph.
@pytest.fixture(scope="module")
def wide(tokenizer: Tokenizer, states_bundle: Bundle) -> Export:
    """A random model and its graphs for GPUs in fp32, with an aligned decoder."""
    return random_model(1, tokenizer.vocabulary_size, **WIDE), states_bundle


@pytest.fixture(scope="module", params=["modern", "wide"])
def exported(
    request: pytest.FixtureRequest, tokenizer: Tokenizer, wide: Export, tmp_path_factory: pytest.TempPathFactory
) -> Export:
    """The same, or a model without tied embeddings and without an aligned decoder."""
    if request.param == "wide":
        return wide
    model = random_model(7, tokenizer.vocabulary_size, **MODELS[request.param])
    return model, export_for_cuda(model, tokenizer, tmp_path_factory.mktemp("bundle") / "random")


def test_the_logits_of_every_step_are_those_of_pytorch(exported: Export) -> None:
    model, bundle = exported
    assert np.abs(decoded_logits(model, DeviceGraphs(bundle, 0)) - expected_logits(model)).max() < 1e-4


@torch.inference_mode()
def test_alignments_are_the_attention_maps_of_pytorch(wide: Export) -> None:
    model, bundle = wide
    sources = random_sources(model, 5, ROWS)
    lengths = np.array([len(source) for source in sources], np.int32)
    targets = np.random.default_rng(6).integers(4, model.vocabulary_size, size=(ROWS, 9))
    maps = model.attention_maps(pad(sources), torch.tensor(targets)).numpy()  # [B, L * H, T, S]
    expected = maps[:, [place.layer * model.config.heads + place.head for place in bundle.manifest.alignment_heads]]
    longest = expected.shape[3]
    runtime = DeviceGraphs(bundle, 0, aligned=True).runtime(slots=ROWS)
    runtime.encode(pad(sources).numpy(), lengths, [[row] for row in range(ROWS)])
    for position, column in enumerate(targets.T):
        logits_of_step(runtime, column, np.full(ROWS, position, np.int32), lengths, aligned=True)
        assert runtime.alignments[:, :, :longest] == pytest.approx(expected[:, :, position], abs=1e-4)
        assert not runtime.alignments[:, :, longest:].any()


def test_alignments_change_no_bit_of_the_logits(wide: Export) -> None:
    """The plain decoder does not contain the alignment heads."""
    model, bundle = wide
    sources = random_sources(model, 7, ROWS)
    lengths = np.array([len(source) for source in sources], np.int32)
    sessions = (DeviceGraphs(bundle, 0, aligned=is_aligned) for is_aligned in (False, True))
    runtimes = [item.runtime(slots=ROWS) for item in sessions]
    for runtime in runtimes:
        runtime.encode(pad(sources).numpy(), lengths, [[row] for row in range(ROWS)])
    for position in range(9):
        column = np.random.default_rng(position).integers(4, model.vocabulary_size, size=ROWS)
        steps = [logits_of_step(runtime, column, np.full(ROWS, position, np.int32), lengths) for runtime in runtimes]
        assert len({step.tobytes() for step in steps}) == 1
    assert runtimes[0].alignments.size == 0


@pytest.mark.parametrize("head", [AttentionHead(layer=2, head=0), AttentionHead(layer=0, head=2)])
def test_a_missing_head_is_refused(head: AttentionHead, tokenizer: Tokenizer) -> None:
    model = random_model(9, tokenizer.vocabulary_size, d_model=48, heads=2, decoder_layers=2)
    with pytest.raises(UnsupportedGraphError, match=rf"^align: {head}: expected a layer below 2 and a head below 2"):
        check_options(model.config, "cuda", "fp16", (head,))


def test_every_parameter_is_stored_once_and_read(exported: Export) -> None:
    """Including tied embeddings and computed positions."""
    model, bundle = exported
    assert_packed(bundle)
    weights = (bundle.folder / WEIGHTS_FILE).read_bytes()
    embeddings = {model.source_weight, model.target_weight, model.output_weight}
    assert len(embeddings) == (1 if model.config.tie_embeddings else 3)
    for table in (*embeddings, model.source_positions.table, model.target_positions.table):
        content = table.detach().numpy().tobytes()
        if len(content) >= MIN_EXTERNAL_BYTES:
            assert weights.count(content) == 1


def test_both_graphs_read_the_same_bytes_of_shared_weights(exported: Export) -> None:
    model, bundle = exported
    places = [
        [
            {entry.key: entry.value for entry in tensor.external_data}
            for tensor in graph.graph.initializer
            if tensor.external_data and tuple(tensor.dims) == tuple(model.source_weight.shape)
        ]
        for graph in graphs_of_bundle(bundle)
    ]
    if model.config.tie_embeddings:
        assert places[0] == places[1]
        assert len(places[0]) == 1
    else:
        assert [len(places_of_graph) for places_of_graph in places] == [1, 2]
        assert places[0][0] not in places[1]


def test_an_export_for_a_gpu_is_in_fp16_except_for_the_logits(toy_bundles: ToyBundles, tmp_path: Path) -> None:
    """The bundle of the model may be in 8 bits."""
    options = ["--variant", "cuda", "--precision", "fp16", "--out", str(tmp_path / "cuda")]
    command_line.run("export", [str(toy_bundles("int8")), *options])
    bundle = Bundle.open(tmp_path / "cuda")
    for graph in graphs_of_bundle(bundle):
        kinds = {value.name: value.type.tensor_type.elem_type for value in (*graph.graph.input, *graph.graph.output)}
        states = {name for name in kinds if "key" in name or "value" in name}
        assert {kinds[name] for name in states} == {onnx.TensorProto.FLOAT16}
        assert kinds.get("logits", onnx.TensorProto.FLOAT) == onnx.TensorProto.FLOAT
        assert not {node.op_type for node in graph.graph.node} & {"If", "Loop", "Scan"}
        stored = {tensor.data_type for tensor in graph.graph.initializer if tensor.external_data}
        assert stored == {onnx.TensorProto.FLOAT16}
    with pytest.raises(BundleError, match="variant: cuda"):
        load_sessions(bundle, threads=1)


def test_recurrent_units_have_graphs_for_cpus_only(tokenizer: Tokenizer) -> None:
    model = random_model(8, tokenizer.vocabulary_size, decoder_memory="ssru")
    with pytest.raises(UnsupportedGraphError, match=r"^variant: cuda: expected cpu for a model with recurrent units"):
        check_options(model.config, "cuda", "fp16", ())


def test_a_transformer_has_keys_and_values_of_both_attentions_in_each_layer() -> None:
    states = states_of(random_model(1, d_model=48, heads=2, decoder_layers=2).config)
    assert [state.name for state in states[4:]] == ["self_key_1", "self_value_1", "cross_key_1", "cross_value_1"]
    assert [state.shape for state in states] == ([(2, "target", 24)] * 2 + [(2, "source", 24)] * 2) * 2


@pytest.mark.parametrize(("variant", "precision"), [("cuda", "fp32"), ("cuda", "int8"), ("cpu", "fp16")])
def test_fp16_and_cuda_require_each_other(variant: GraphVariant, precision: Precision, tokenizer: Tokenizer) -> None:
    model = random_model(8, tokenizer.vocabulary_size)
    with pytest.raises(UnsupportedGraphError, match=f"^precision: {precision} with the variant {variant}: expected"):
        check_options(model.config, variant, precision, ())


def test_names_are_those_of_the_manifest_and_none_is_of_this_machine(exported: Export) -> None:
    assert_named(exported[1])
