"""ONNX Runtime computes from a recurrent model's graphs what PyTorch computes, bitwise independent of other rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.export import Dim

from export.graphs import to_onnx
from export.graphs.recurrent import RecurrentDecoderGraph, RecurrentEncoderGraph, recurrent_states
from model.network.recurrent import Recurrent
from model.tokenizer.tokenizer import BOS_ID, PAD_ID
from serve.bundle.manifest import GraphSignature
from tests.support.recurrent_models import VOCABULARY, Kind, name_kind, random_recurrent

OPSET = 24
ROWS = 33
# Every kind of attention; widths and depths that use every code path of the matrix product.
KINDS: tuple[Kind, ...] = (
    {"attention": "additive", "d_model": 256},
    {"attention": "additive", "hard": True, "d_model": 64},
    {"attention": "dot", "d_model": 64, "encoder_layers": 2, "decoder_layers": 2},
    {"attention": "general", "d_model": 256},
    {"attention": "concat", "d_model": 64, "decoder_layers": 2},
    {"attention": "local_monotonic", "d_model": 64, "encoder_layers": 2},
    {"attention": "local_predictive", "d_model": 64},
)

Arrays = dict[str, NDArray[Any]]


@dataclass
class Exported:
    """A random model and its graphs; the capacity of the source states is its longest source."""

    model: Recurrent
    encoder: onnx.ModelProto
    decoder: onnx.ModelProto

    def __post_init__(self) -> None:
        self.encoder_session = open_session(self.encoder)
        self.decoder_session = open_session(self.decoder)
        self.states = recurrent_states(self.model.config)
        self.sources = random_sources(self.model.config.max_source_tokens)

    def encode(self, rows: list[int], padding: int = 0) -> Arrays:
        """Encodes sources in one batch; returns the outputs by name."""
        lengths = self.lengths(rows)
        source_ids = np.full((len(rows), lengths.max() + padding), PAD_ID)
        for padded, row in zip(source_ids, rows, strict=True):
            padded[: len(self.sources[row])] = self.sources[row]
        outputs = self.encoder_session.run(None, {"source_ids": source_ids, "source_lengths": lengths})
        return dict(zip((name for name, _ in self.states), outputs, strict=True))

    def step(self, token_ids: NDArray[np.int64], positions: NDArray[np.int32], rows: list[int], past: Arrays) -> Arrays:
        """Decodes one step of rows with given states; cuts source states to the capacity."""
        names = [name if "source" in shape else f"past_{name}" for name, shape in self.states]
        feeds = {"token_ids": token_ids, "positions": positions, "source_lengths": self.lengths(rows)}
        feeds |= {feed: past[name] for feed, (name, _) in zip(names, self.states, strict=True)}
        outputs = self.decoder_session.run(None, feeds)
        names = [output.name.removeprefix("present_") for output in self.decoder_session.get_outputs()]
        return dict(zip(names, outputs, strict=True))

    def lengths(self, rows: list[int]) -> NDArray[np.int32]:
        return np.array([len(self.sources[row]) for row in rows], np.int32)

    def start(self, rows: list[int], behind: float = 0.0) -> Arrays:
        """Returns the initial states of rows encoded alone, with a value beyond each source's end."""
        states: Arrays = {}
        for name, shape in self.states:
            values = [self.encode([row])[name][0] for row in rows]
            if "source" in shape:
                capacity = self.model.config.max_source_tokens
                values = [np.pad(v, [(0, capacity - len(v)), (0, 0)], constant_values=behind) for v in values]
            states[name] = np.stack(values)
        return states


def open_session(graph: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(graph.SerializeToString(), options, providers=["CPUExecutionProvider"])


def random_sources(longest: int) -> list[NDArray[np.int64]]:
    """Returns one source per row, including the shortest and the longest."""
    random = np.random.default_rng(1)
    lengths = [longest, 1, longest - 1, *random.integers(1, longest, size=ROWS - 3)]
    return [random.integers(4, VOCABULARY, size=length) for length in lengths]


def export(module: nn.Module, inputs: tuple[Any, ...], dynamic: tuple[Any, ...], names: list[list[str]]) -> Any:
    return to_onnx._to_onnx(module, inputs, dynamic, GraphSignature(inputs=tuple(names[0]), outputs=tuple(names[1])))


def export_recurrent(model: Recurrent) -> Exported:
    rows, length, states = Dim.DYNAMIC, Dim.DYNAMIC, recurrent_states(model.config)
    lengths = torch.full((2,), 3, dtype=torch.int32)
    names = [name for name, _ in states]
    encoder = export(
        RecurrentEncoderGraph(model),
        (torch.ones(2, 3, dtype=torch.int64), lengths),
        ({0: rows, 1: length}, {0: rows}),
        [["source_ids", "source_lengths"], names],
    )
    recurrent = [name for name, shape in states if "source" not in shape]
    examples = [torch.zeros(2, *(7 if size == "source" else int(size) for size in shape)) for _, shape in states]
    decoder = export(
        RecurrentDecoderGraph(model),
        (torch.ones(2, dtype=torch.int64), torch.zeros(2, dtype=torch.int32), lengths, examples),
        (*[{0: rows}] * 3, [{0: rows, 1: length} if "source" in shape else {0: rows} for _, shape in states]),
        [
            ["token_ids", "positions", "source_lengths", *(f"past_{n}" if n in recurrent else n for n in names)],
            ["logits", *(f"present_{name}" for name in recurrent)],
        ],
    )
    return Exported(model, encoder, decoder)


@pytest.fixture(scope="module", params=KINDS, ids=name_kind)
def exported(request: pytest.FixtureRequest) -> Exported:
    # A length with no common factors, so that the longest source ends inside a block.
    return export_recurrent(random_recurrent(**request.param, max_source_tokens=37))


@torch.inference_mode()
def translate_by_pytorch(model: Recurrent, source: NDArray[np.int64], length: int) -> list[int]:
    state, token_ids = model.start(model.encode(torch.tensor(source)[None])), torch.tensor([BOS_ID])
    translation = []
    for _ in range(length):
        logits, state = model.decode_step(token_ids, state)
        token_ids = logits.argmax(dim=-1)
        translation += token_ids.tolist()
    return translation


def test_it_translates_token_by_token_like_pytorch(exported: Exported) -> None:
    """Beyond EOS too: longer than any source window moves."""
    rows = list(range(ROWS))
    past, token_ids = exported.start(rows), np.full(ROWS, BOS_ID)
    columns = []
    for position in range(12):
        present = exported.step(token_ids, np.full(ROWS, position, np.int32), rows, past)
        token_ids = present.pop("logits").argmax(axis=1)
        past |= present
        columns.append(token_ids)
    expected = [translate_by_pytorch(exported.model, source, 12) for source in exported.sources]
    assert np.stack(columns, axis=1).tolist() == expected
    assert len({tuple(row) for row in expected}) > 5, "they should differ from source to source"


def test_the_logits_of_every_step_are_those_of_pytorch(exported: Exported) -> None:
    rows, targets = list(range(8)), np.random.default_rng(2).integers(4, VOCABULARY, size=(8, 9))
    past = exported.start(rows)
    for row in rows:
        with torch.inference_mode():
            expected = exported.model(torch.tensor(exported.sources[row])[None], torch.tensor(targets[row])[None])[0]
        state = {name: value[row : row + 1] for name, value in past.items()}
        for position, token_id in enumerate(targets[row]):
            present = exported.step(np.array([token_id]), np.array([position], np.int32), [row], state)
            np.testing.assert_allclose(present.pop("logits")[0], expected[position], atol=1e-4)
            state |= present


@pytest.mark.parametrize("padding", [0, 1, 8, 19])
def test_a_source_is_encoded_the_same_alone_and_in_a_batch(exported: Exported, padding: int) -> None:
    """Bitwise, for every number of rows."""
    order = np.random.default_rng(padding).permutation(ROWS).tolist()
    alone = {row: exported.encode([row]) for row in order}
    for count in range(1, ROWS + 1):
        together = exported.encode(order[:count], padding)
        for name, shape in exported.states:
            for row, value in zip(order, together[name], strict=False):
                real = value[: len(exported.sources[row])] if "source" in shape else value
                assert np.array_equal(real, alone[row][name][0]), (count, name, row)


def test_a_row_is_decoded_the_same_alone_and_in_a_batch(exported: Exported) -> None:
    """Bitwise, for every number of rows and position, with any values beyond the source's end."""
    random = np.random.default_rng(3)
    order = random.permutation(ROWS).tolist()
    past, other = exported.start(order), exported.start(order, behind=3.5)
    token_ids = random.integers(4, VOCABULARY, size=ROWS)
    positions = random.integers(0, 20, size=ROWS).astype(np.int32)

    def step(first: int, last: int, states: Arrays) -> Arrays:
        part = {name: value[first:last] for name, value in states.items()}
        return exported.step(token_ids[first:last], positions[first:last], order[first:last], part)

    alone = [step(index, index + 1, past) for index in range(ROWS)]
    for count in range(1, ROWS + 1):
        for name, values in step(0, count, other).items():
            for index, value in enumerate(values):
                assert np.array_equal(value, alone[index][name][0]), (count, name, order[index])


def test_the_graphs_have_the_declared_states(exported: Exported) -> None:
    width = exported.model.config.d_model
    source = {name for name, shape in exported.states if shape == ("source", width)}
    recurrent = {name for name, shape in exported.states if shape == (width,)}
    encoder, decoder = exported.encoder.graph, exported.decoder.graph
    assert [output.name for output in encoder.output] == [name for name, _ in exported.states]
    assert {value.name for value in decoder.input} == {
        *("token_ids", "positions", "source_lengths"),
        *source,
        *(f"past_{name}" for name in recurrent),
    }
    assert {value.name for value in decoder.output} == {"logits", *(f"present_{name}" for name in recurrent)}


def test_the_graphs_are_valid_and_of_standard_operators(exported: Exported) -> None:
    for graph in (exported.encoder, exported.decoder):
        onnx.checker.check_model(graph)
        assert {node.domain for node in graph.graph.node} == {""}


def test_no_graph_holds_a_weight_that_it_does_not_read(exported: Exported) -> None:
    for model in (exported.encoder, exported.decoder):
        read = {name for node in model.graph.node for name in node.input}
        assert {tensor.name for tensor in model.graph.initializer} <= read


def test_the_decoder_graph_is_the_models_own_step(exported: Exported) -> None:
    """PyTorch can run it."""
    rows = [0, 3, 5]
    past = exported.start(rows)
    token_ids, positions = torch.tensor([5, 6, 7]), np.array([2, 0, 4], np.int32)
    expected = exported.step(token_ids.numpy(), positions, rows, past)
    states = [torch.tensor(past[name]) for name, _ in exported.states]
    with torch.inference_mode():
        lengths = torch.tensor(exported.lengths(rows))
        outputs = RecurrentDecoderGraph(exported.model)(token_ids, torch.tensor(positions), lengths, states)
    for actual, value in zip(outputs, expected.values(), strict=True):
        np.testing.assert_allclose(actual, value, atol=1e-4)
