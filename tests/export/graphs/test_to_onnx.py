"""ONNX Runtime computes from graphs with states what PyTorch computes for each sequence alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dragoman.export.graphs.graphs import Graphs, graphs_of
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.cpu import Runtime, Sessions
from tests.support import recall
from tests.support.recall import MAX_TARGET_TOKENS, VOCABULARY, recall_alone, recall_bundle, recall_graphs
from tests.support.toy import random_model

COUNT = 12
SLOTS = 5


@dataclass
class Forced:
    """A sequence with fixed target tokens, the logits of its steps, and the number of steps done."""

    source_ids: list[int]
    target_ids: list[int]
    expected: NDArray[np.float32]
    done: int = 0


@pytest.fixture(scope="module")
def graphs() -> Graphs:
    return recall_graphs()


@pytest.fixture(scope="module")
def bundle(graphs: Graphs, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return recall_bundle(graphs, tmp_path_factory.mktemp("recall"))


@pytest.fixture(scope="module")
def sessions(bundle: Bundle) -> Sessions:
    return Sessions.load(bundle, threads=1)


def draw(graphs: Graphs) -> list[Forced]:
    """Returns sequences of all lengths."""
    random = np.random.default_rng(3)
    sequences = []
    for _ in range(COUNT):
        source_ids = random.integers(4, VOCABULARY, size=random.integers(1, recall.MAX_SOURCE_TOKENS + 1)).tolist()
        target_ids = random.integers(4, VOCABULARY, size=MAX_TARGET_TOKENS).tolist()
        sequences.append(Forced(source_ids, target_ids, recall_alone(graphs, source_ids, target_ids).numpy()))
    return sequences


@pytest.fixture(scope="module")
def forced(graphs: Graphs) -> list[Forced]:
    return draw(graphs)


def encode(runtime: Runtime, sequences: list[Forced], rows: Sequence[int]) -> None:
    lengths = np.array([len(sequence.source_ids) for sequence in sequences], np.int32)
    ids = np.zeros((len(sequences), int(lengths.max())), np.int64)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence.source_ids)] = sequence.source_ids
        sequence.done = 0
    runtime.encode(ids, lengths, [[row] for row in rows])


def assert_step(runtime: Runtime, running: dict[int, Forced]) -> None:
    """Runs a step of rows, each at its own position, and asserts PyTorch's logits."""
    rows = np.array(list(running))
    tokens = np.array([sequence.target_ids[sequence.done] for sequence in running.values()])
    positions = np.array([sequence.done for sequence in running.values()], np.int32)
    lengths = np.array([len(sequence.source_ids) for sequence in running.values()], np.int32)
    found = runtime.step(rows, tokens, positions, lengths).fetch(rows)
    for sequence, logits in zip(running.values(), found, strict=True):
        np.testing.assert_allclose(logits, sequence.expected[sequence.done], rtol=1e-4, atol=1e-4)
        sequence.done += 1


def assert_translates(runtime: Runtime, sequences: list[Forced]) -> None:
    encode(runtime, sequences, range(len(sequences)))
    for _ in range(MAX_TARGET_TOKENS):
        assert_step(runtime, dict(enumerate(sequences)))


def test_every_state_affects_the_logits(forced: list[Forced]) -> None:
    """Required for the tests below to have an effect."""
    for sequence in forced:
        assert np.ptp(sequence.expected, axis=0).max() > 0.1
    assert np.ptp([sequence.expected[0] for sequence in forced], axis=0).max() > 0.1


def test_a_step_may_read_an_old_state_after_it_wrote_the_new_one(sessions: Sessions, forced: list[Forced]) -> None:
    assert_translates(Runtime(sessions, slots=COUNT), forced)


@given(plan=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=3, max_size=25), seed=st.integers(0, 99))
def test_sequences_may_join_and_leave_at_any_step(
    sessions: Sessions, forced: list[Forced], plan: list[tuple[int, int]], seed: int
) -> None:
    random = np.random.default_rng(seed)
    waiting = list(forced)
    runtime = Runtime(sessions, slots=SLOTS)
    running: dict[int, Forced] = {}
    for joining, leaving in plan:
        free = sorted(set(range(SLOTS)) - set(running))[: min(joining, len(waiting))]
        if free:
            new = [waiting.pop() for _ in free]
            encode(runtime, new, free)
            running |= zip(free, new, strict=True)
        if not running:
            continue
        assert_step(runtime, running)
        left = set(random.integers(SLOTS, size=leaving).tolist())
        running = {row: item for row, item in running.items() if item.done < MAX_TARGET_TOKENS and row not in left}


def test_a_graph_may_lack_an_unused_input(tmp_path: Path) -> None:
    graphs = recall_graphs(uses_positions=False)
    bundle = without_positions(recall_bundle(graphs, tmp_path))
    assert "positions" not in bundle.manifest.decoder.inputs
    assert_translates(Runtime(Sessions.load(bundle, threads=1), slots=COUNT), draw(graphs))


def without_positions(bundle: Bundle) -> Bundle:
    """Removes an unused input, as exporters may do."""
    graph = onnx.load(bundle.decoder_path, load_external_data=False)
    (positions,) = (value for value in graph.graph.input if value.name == "positions")
    graph.graph.input.remove(positions)
    onnx.save(graph, bundle.decoder_path)
    decoder = bundle.manifest.decoder
    inputs = tuple(name for name in decoder.inputs if name != "positions")
    manifest = bundle.manifest.model_dump() | {"decoder": {"inputs": inputs, "outputs": decoder.outputs}}
    return Bundle(bundle.folder, type(bundle.manifest).model_validate(manifest), ())


def test_the_signatures_are_those_of_the_graphs(graphs: Graphs, bundle: Bundle) -> None:
    exported = bundle.manifest
    assert exported.states == graphs.states
    assert exported.encoder.outputs == ("hidden", "annotations")
    decoder = onnx.load(bundle.decoder_path, load_external_data=False).graph
    assert exported.decoder.inputs == tuple(value.name for value in decoder.input)
    assert exported.decoder.inputs[3:] == ("past_hidden", "annotations")
    assert exported.decoder.outputs == ("logits", "present_hidden")


def test_a_transformer_has_keys_and_values_of_both_attentions_in_each_layer() -> None:
    states = graphs_of(random_model(1, d_model=48, heads=2, decoder_layers=2), "cuda", "fp16").states
    assert [state.name for state in states[4:]] == ["self_key_1", "self_value_1", "cross_key_1", "cross_value_1"]
    assert [state.shape for state in states] == ([(2, "target", 24)] * 2 + [(2, "source", 24)] * 2) * 2


def test_a_model_without_graphs_is_refused(graphs: Graphs) -> None:
    with pytest.raises(TypeError, match=r"^RecallDecoder: expected "):
        graphs_of(graphs.decoder, "cpu", "fp32")  # type: ignore[arg-type]  # that is the point
