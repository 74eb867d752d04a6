"""The files of native graphs: one node each, a body of standard operators, and every weight once."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch

from dragoman.export.graphs.native.models import DOMAIN, OPSET, read_native
from dragoman.export.make_bundle import BundleOptions
from dragoman.model.network.transformer import Transformer
from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.bundle.bundle import CHOOSE_FILE, WEIGHTS_FILE, Bundle
from dragoman.serve.bundle.manifest import Precision
from tests.support.graph_models import HEADS, MODELS, assert_named, assert_packed, graphs_of_bundle, places_of
from tests.support.toy import export_model, random_model

Export = tuple[Transformer, Bundle]
KINDS: list[tuple[str, Precision]] = [("the paper's", "fp32"), ("modern", "fp32"), ("rms, learned", "int8")]


@pytest.fixture(scope="module", params=KINDS, ids=str)
def exported(request: pytest.FixtureRequest, tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Export:
    """A random model and its bundle, tied or not."""
    options, precision = request.param
    model = random_model(7, tokenizer.vocabulary_size, **MODELS[options])
    out = tmp_path_factory.mktemp("bundle") / "random"
    return model, export_model(model, tokenizer, out, options=BundleOptions("random", precision=precision))


def test_a_graph_is_one_node_and_its_body_has_only_standard_operators(exported: Export) -> None:
    graphs = [*graphs_of_bundle(exported[1]), onnx.load(exported[1].folder / CHOOSE_FILE)]
    for graph, name in zip(graphs, ("Encode", "Step", "Choose"), strict=True):
        (node,), (function,) = graph.graph.node, graph.functions
        assert (node.domain, node.op_type, function.domain, function.name) == (DOMAIN, name, DOMAIN, name)
        assert {operation.domain for operation in function.node} == {""}
        assert [opset.version for opset in function.opset_import] == [OPSET]
        assert {attribute.name for attribute in node.attribute} == set(function.attribute)


def test_names_are_those_of_the_manifest_and_none_is_of_this_machine(exported: Export) -> None:
    assert_named(exported[1])


def test_every_weight_is_stored_once_at_a_multiple_of_64_bytes(exported: Export) -> None:
    values = assert_packed(exported[1])
    assert len(set(values)) == len(values)


def test_all_vectors_of_a_type_are_one_weight(exported: Export) -> None:
    for graph in graphs_of_bundle(exported[1]):
        kinds = [tensor.data_type for tensor in graph.graph.initializer if len(tensor.dims) == 1]
        assert kinds == [onnx.TensorProto.FLOAT, onnx.TensorProto.INT32][: len(kinds)]


def test_tied_embeddings_are_one_weight_of_both_graphs(exported: Export) -> None:
    model, bundle = exported
    places = [places_of(graph) for graph in graphs_of_bundle(bundle)]
    names = [[name for name in place if "embedding" in name or name.startswith("output.weight")] for place in places]
    if model.config.tie_embeddings:
        assert names == [["embedding.weight"], ["target_embedding.weight"]]
        assert places[0]["embedding.weight"] == places[1]["target_embedding.weight"]
    else:
        assert names == [["embedding.weight"], ["target_embedding.weight", "output.weight"]]
        assert places[0]["embedding.weight"] not in places[1].values()


def test_equal_weights_are_read_by_each_of_their_names(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = random_model(3, tokenizer.vocabulary_size, encoder_layers=2)
    first, second = model.encoder_layers
    with torch.no_grad():
        second.load_state_dict(first.state_dict())
    weights = read_native(export_model(model, tokenizer, tmp_path / "equal").encoder_path)
    names = [name for name in weights if name.startswith("encoder.0.")]
    assert len(names) == 12
    for name in names:
        np.testing.assert_array_equal(weights[name], weights[name.replace("encoder.0.", "encoder.1.")])


def test_the_vocabulary_is_padded_with_impossible_tokens(exported: Export) -> None:
    model, bundle = exported
    bias = read_native(bundle.decoder_path)["output.bias"]
    assert len(bias) % 16 == 0
    assert np.isneginf(bias[model.vocabulary_size :]).all()
    assert np.isfinite(bias[: model.vocabulary_size]).all()


def test_alignment_heads_take_no_weights(tokenizer: Tokenizer, tmp_path: Path) -> None:
    model = random_model(9, tokenizer.vocabulary_size, d_model=48, heads=2, decoder_layers=2)
    plain = export_model(model, tokenizer, tmp_path / "plain")
    aligned = export_model(model, tokenizer, tmp_path / "aligned", options=BundleOptions("a", alignment_heads=HEADS))
    assert (plain.folder / WEIGHTS_FILE).read_bytes() == (aligned.folder / WEIGHTS_FILE).read_bytes()
