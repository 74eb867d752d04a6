"""The figures of a bundle match its folder and graphs."""

import sys
from pathlib import Path
from shutil import copytree

import pytest

from dragoman.export.inspect.figures import inspect
from dragoman.serve.bundle.bundle import Bundle


def test_every_file_has_its_size_and_its_status_in_the_manifest(recurrent_bundle: Bundle, tmp_path: Path) -> None:
    folder = Path(copytree(recurrent_bundle.folder, tmp_path / "bundle"))
    (folder / "notes.txt").write_text("mine")
    files = {file.name: file for file in inspect(Bundle.open(folder), slots=1).files}
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert {name: file.size_bytes for name, file in files.items()} == sizes
    assert files["notes.txt"].state == "not listed"
    assert files["manifest.json"].state == "lists the others"
    assert files["weights.bin"].state == "sha256 as listed"


def test_lengths_have_the_names_of_the_manifest(states_bundle: Bundle) -> None:
    encoder, decoder = inspect(states_bundle, slots=1).graphs
    shapes = {tensor.name: tensor.shape for graph in (encoder, decoder) for tensor in (*graph.inputs, *graph.outputs)}
    assert shapes["source_ids"] == ("rows", "source")
    assert shapes["positions"] == ("rows",)
    assert shapes["cross_key_0"] == ("rows", 4, "source", 64)
    assert shapes["present_self_value_1"] == ("rows", 4, "target", 64)
    assert shapes["logits"] == ("rows", states_bundle.manifest.vocabulary_size)


def test_native_graphs_are_one_operator_with_the_sizes_of_their_caches(wide_bundle: Bundle) -> None:
    encoder, decoder = inspect(wide_bundle, slots=1).graphs
    assert (encoder.operators, decoder.operators) == ({"dragoman.Encode": 1}, {"dragoman.Step": 1})
    shapes = {tensor.name: tensor.shape for tensor in (*encoder.inputs, *decoder.inputs, *decoder.outputs)}
    assert shapes["source_ids"] == ("tokens",)
    assert shapes["positions"] == ("rows",)
    assert shapes["source_cache"] == ("source_slots", 2, 3, 2, 4, 16 * 64)
    assert shapes["present_target_cache"] == shapes["target_cache"] == ("target_slots", 2, 2, 2, 4, 16 * 64)


def test_the_steps_of_a_native_decoder_are_those_of_its_layers(int8_bundle: Bundle) -> None:
    embedding, *layers, projection = inspect(int8_bundle, slots=1).step
    assert [(block.title, block.times) for block in (embedding, projection)] == [("embedding", 1), ("projection", 1)]
    assert [block.title for block in layers] == ["self-attention", "cross-attention", "feed-forward"]
    assert {block.times for block in layers} == {3}
    own, cross, feed_forward = layers
    assert [state.name for state in own.reads[2:4]] == ["target_cache_1", "target_scales_1"]
    assert own.writes == own.reads
    assert [state.name for state in cross.reads[2:4]] == ["source_cache_1", "source_scales_1"]
    assert cross.writes == ()
    assert [matrix.shape for matrix in feed_forward.matrices] == 3 * [(64, 64, 16, 4), (16, 256, 16, 4)]


def test_running_operators_are_those_after_optimization(recurrent_bundle: Bundle) -> None:
    _, decoder = inspect(recurrent_bundle, slots=1).graphs
    assert decoder.running is not None
    assert decoder.running["Gather"] > 0
    assert sum(decoder.running.values()) < sum(decoder.operators.values())


def test_without_onnx_runtime_no_operator_is_running(recurrent_bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dragoman.serve.runtime.cpu", None)
    assert [graph.running for graph in inspect(recurrent_bundle, slots=1).graphs] == [None, None]


def test_slots_change_the_engine_and_nothing_else(recurrent_bundle: Bundle) -> None:
    one, many = inspect(recurrent_bundle, slots=1), inspect(recurrent_bundle, slots=7)
    assert many.engine.state_bytes == 7 * one.engine.state_bytes
    assert (one.weights_bytes, one.parameters, one.step) == (many.weights_bytes, many.parameters, many.step)
