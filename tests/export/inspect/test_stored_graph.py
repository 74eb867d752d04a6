"""Stored graphs are read as ONNX reads them, and shared weights are counted once."""

from collections import Counter
from pathlib import Path
from shutil import copytree

import onnx
import pytest
from onnx import numpy_helper

from dragoman.export.graphs.graph_files import ALIGNMENT_BYTES, MIN_EXTERNAL_BYTES
from dragoman.export.inspect.graph import count_operators, count_parameters, distinct_weights, read_graph
from dragoman.serve.bundle.bundle import WEIGHTS_FILE, Bundle, BundleError
from tests.support.recurrent_models import LUONG, random_recurrent
from tests.support.toy import WIDE, random_model


def parameters_of(bundle: Bundle) -> dict[str, int]:
    return count_parameters(distinct_weights([read_graph(bundle.encoder_path), read_graph(bundle.decoder_path)]))


def test_a_transformer_has_the_parameters_of_pytorch_and_its_table_of_positions(wide_bundle: Bundle) -> None:
    """The vocabulary of 31 is padded to 32, and has a bias."""
    manifest = wide_bundle.manifest
    model = random_model(1, manifest.vocabulary_size, **WIDE)
    expected = sum(parameter.numel() for parameter in model.parameters()) + model.source_positions.table.numel()
    assert manifest.vocabulary_size == 31
    assert parameters_of(wide_bundle) == {"float32": expected + model.config.d_model + 32}


def test_a_recurrent_model_has_the_parameters_of_pytorch(recurrent_bundle: Bundle) -> None:
    model = random_recurrent(recurrent_bundle.manifest.vocabulary_size, **LUONG)
    assert parameters_of(recurrent_bundle) == {"float32": sum(parameter.numel() for parameter in model.parameters())}


def test_a_matrix_that_is_also_stored_transposed_is_counted_once(states_bundle: Bundle, tmp_path: Path) -> None:
    graph = onnx.load(states_bundle.decoder_path)
    matrix = next(tensor for tensor in graph.graph.initializer if len(tensor.dims) > 1)
    transposed = numpy_helper.from_array(numpy_helper.to_array(matrix).T.copy(), "transposed")
    before = count_parameters(distinct_weights([read_graph(states_bundle.decoder_path)]))
    graph.graph.initializer.append(transposed)
    onnx.save(graph, tmp_path / "decoder.onnx")
    assert count_parameters(distinct_weights([read_graph(tmp_path / "decoder.onnx")])) == before


@pytest.mark.parametrize("fixture", ["wide_bundle", "int8_bundle", "recurrent_bundle"])
def test_the_large_weights_together_are_as_large_as_their_file(fixture: str, request: pytest.FixtureRequest) -> None:
    bundle: Bundle = request.getfixturevalue(fixture)
    weights = distinct_weights([read_graph(bundle.encoder_path), read_graph(bundle.decoder_path)])
    large = [weight.size_bytes for weight in weights if weight.size_bytes >= MIN_EXTERNAL_BYTES]
    assert 0 <= (bundle.folder / WEIGHTS_FILE).stat().st_size - sum(large) < ALIGNMENT_BYTES * len(large)


def test_operators_are_counted_with_their_domain_the_most_frequent_first(wide_bundle: Bundle) -> None:
    nodes = onnx.load(wide_bundle.decoder_path).graph.node
    counted = count_operators(wide_bundle.decoder_path)
    assert counted == Counter(f"{node.domain}.{node.op_type}".removeprefix(".") for node in nodes)
    assert list(counted.values()) == sorted(counted.values(), reverse=True)


def test_inputs_and_outputs_have_type_and_shape(wide_bundle: Bundle) -> None:
    graph = read_graph(wide_bundle.decoder_path)
    assert tuple(tensor.name for tensor in graph.inputs) == wide_bundle.manifest.decoder.inputs
    logits = graph.outputs[0]
    assert (logits.dtype, logits.shape[1:]) == ("float32", (wide_bundle.manifest.vocabulary_size,))


def test_a_file_that_is_no_graph_is_named(tmp_path: Path) -> None:
    (tmp_path / "decoder.onnx").write_bytes(b"\xff not a graph")
    with pytest.raises(BundleError, match=r"decoder\.onnx: expected an ONNX graph: "):
        read_graph(tmp_path / "decoder.onnx")


@pytest.mark.parametrize("kept_bytes", [None, 100])
def test_a_graph_without_all_its_weights_is_named(kept_bytes: int | None, wide_bundle: Bundle, tmp_path: Path) -> None:
    folder = Path(copytree(wide_bundle.folder, tmp_path / "bundle"))
    weights = (folder / WEIGHTS_FILE).read_bytes()
    (folder / WEIGHTS_FILE).unlink()
    if kept_bytes is not None:
        (folder / WEIGHTS_FILE).write_bytes(weights[:kept_bytes])
    with pytest.raises(BundleError, match=r"decoder\.onnx: "):
        read_graph(folder / "decoder.onnx")
