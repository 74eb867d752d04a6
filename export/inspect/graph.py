"""One decoder step as a chain of blocks, found in the graph: attention, feed-forward and recurrent updates.

What depends on the last token is the spine of the graph. A block ends where a single tensor of the spine carries all
that follows, as it does between the residual connections of a Transformer, or where the next value of a recurrent state
is known. All else, such as masks made of lengths, belongs to the first block that uses it. No architecture is known
here. `dragoman inspect` tells and draws the blocks.

An ONNX graph as it is stored: what goes in and out, its operators, its weights. Called by `dragoman inspect`.

Keeps of the weights only digests, which tell those that two graphs share. Knows no bundle and no architecture.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from onnx.checker import ValidationError

from serve.bundle.bundle import BundleError
from serve.bundle.manifest import DECODER_INPUTS, LOGITS, StateSpec

# Types of sizes, indices and masks; numbers of every other type were learned, or computed from what was.
STRUCTURAL_TYPES = ("int32", "int64", "bool")


@dataclass(frozen=True, slots=True)
class TensorType:
    """Name, type and shape of a tensor.

    Attributes:
        shape: a size that differs from call to call has a name instead of a number.
        row_bytes: size of one row, a row being all but the first axis; None if that depends on the call.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    row_bytes: int | None


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant tensor of a graph.

    Attributes:
        digest: of the values; the same for a matrix and the transposed one, which are the same parameters.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    digest: str

    @property
    def is_parameter(self) -> bool:
        """Whether these are numbers to compute with: neither sizes and indices nor a constant of a formula."""
        return bool(self.shape) and self.dtype not in STRUCTURAL_TYPES


@dataclass(frozen=True, slots=True)
class Node:
    """One operator in a graph. Operators that are not of the standard have their domain in front.

    Attributes:
        inputs: names of tensors; an optional one that is not given is left out.
        outputs: likewise.
    """

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """A graph.

    Attributes:
        nodes: in an order in which they can be computed.
        tensors: type of every tensor between nodes that the graph declares, by its name; inputs and outputs as well.
        weights: by name.
    """

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    nodes: tuple[Node, ...]
    tensors: Mapping[str, TensorType]
    weights: Mapping[str, Weight]


def read_graph(path: Path) -> StoredGraph:
    """Reads a graph with its weights.

    Raises:
        BundleError: if the file is no ONNX graph, or its weights cannot be read.
    """
    graph = _load(path)
    inputs, outputs = _types(graph.input), _types(graph.output)
    return StoredGraph(
        inputs,
        outputs,
        tuple(map(_node, graph.node)),
        {tensor.name: tensor for tensor in (*inputs, *outputs, *_types(graph.value_info))},
        {tensor.name: _weight(tensor, path) for tensor in graph.initializer},
    )


def count_operators(path: Path) -> dict[str, int]:
    """Returns how many nodes of a graph have each operator, the most frequent first.

    Raises:
        BundleError: if the file is no ONNX graph.
    """
    counts = Counter(_node(node).operator for node in _load(path).node)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def distinct_weights(graphs: Iterable[StoredGraph]) -> tuple[Weight, ...]:
    """Returns the weights of graphs, those that several share once."""
    weights = [weight for graph in graphs for weight in graph.weights.values()]
    return tuple({(weight.dtype, weight.shape, weight.digest): weight for weight in weights}.values())


def count_parameters(weights: Iterable[Weight]) -> dict[str, int]:
    """Returns how many parameters there are of each type; a matrix that is also stored transposed counts once."""
    parameters = {(weight.dtype, weight.digest): weight for weight in weights if weight.is_parameter}
    counts: Counter[str] = Counter()
    for weight in parameters.values():
        counts[weight.dtype] += prod(weight.shape)
    return dict(counts)


def _load(path: Path) -> onnx.GraphProto:
    try:
        return onnx.load(path, load_external_data=False).graph
    except DecodeError as error:
        raise BundleError(f"{path}: no ONNX graph: {error}") from error


def _node(node: onnx.NodeProto) -> Node:
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return Node(operator, tuple(filter(None, node.input)), tuple(filter(None, node.output)))


def _types(values: Sequence[onnx.ValueInfoProto]) -> tuple[TensorType, ...]:
    return tuple(map(_type, values))


def _type(value: onnx.ValueInfoProto) -> TensorType:
    tensor = value.type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    shape = tuple(size.dim_value if size.HasField("dim_value") else size.dim_param for size in tensor.shape.dim)
    row = [size for size in shape[1:] if isinstance(size, int)]
    known = len(row) == len(shape[1:])
    return TensorType(value.name, dtype.name, shape, prod(row) * dtype.itemsize if known else None)


def _weight(tensor: onnx.TensorProto, graph: Path) -> Weight:
    try:
        values = numpy_helper.to_array(tensor, str(graph.parent))
    except (OSError, ValueError, ValidationError) as error:
        raise BundleError(f"{graph}: {tensor.name}: {error}") from error
    return Weight(tensor.name, values.dtype.name, values.shape, values.nbytes, _digest(values))


def _digest(values: NDArray[np.generic]) -> str:
    orders = (values, values.T) if values.ndim == 2 else (values,)  # noqa: PLR2004 - a matrix has two axes
    return min(hashlib.sha256(order.tobytes()).hexdigest() for order in orders)


TOKENS = DECODER_INPUTS[0]
# Without one of these, nodes are no block of their own: they normalize or rearrange what the block before has computed.
PRODUCTS = ("MatMul", "Gemm", "MatMulInteger", "com.microsoft.MatMulIntegerToFloat")
# They read no values: sizes are known before the last token is, and a block that asks a state for its size has no use
# for the state.
SIZES = ("Shape", "Size")
TITLES = {"target": "self-attention", "source": "cross-attention", "recurrent": "recurrent update"}


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the step.

    Attributes:
        title: what it does.
        nodes: how many operators it is made of.
        matrices: the weights of two axes and more that it reads.
        reads: states that it takes.
        writes: states of which it computes the next value.
        carries: what goes on to the following blocks, or out as logits.
    """

    title: str
    nodes: int
    matrices: tuple[Weight, ...]
    reads: tuple[StateSpec, ...]
    writes: tuple[StateSpec, ...]
    carries: tuple[TensorType, ...]

    @property
    def form(self) -> tuple[object, ...]:
        """Equal for blocks that do the same with other weights and other states."""
        return (
            self.title,
            sorted((matrix.dtype, matrix.shape) for matrix in self.matrices),
            [state.shape for state in self.reads],
            [state.shape for state in self.writes],
            [(tensor.dtype, tensor.row_bytes) for tensor in self.carries],
        )


@dataclass(frozen=True, slots=True)
class Repetition:
    """Blocks that follow one another in the same form, as layers do.

    Attributes:
        rounds: the blocks of every round; one round if nothing is repeated.
    """

    rounds: tuple[tuple[Block, ...], ...]


@dataclass(frozen=True, slots=True)
class _Span:
    """Nodes of a block that is being found, and the tensors that leave it."""

    nodes: list[Node]
    leaving: tuple[str, ...]

    @property
    def read(self) -> set[str]:
        return {name for node in self.nodes if node.operator not in SIZES for name in node.inputs}

    @property
    def written(self) -> set[str]:
        return {name for node in self.nodes for name in node.outputs}

    def followed_by(self, other: "_Span") -> "_Span":
        return _Span(self.nodes + other.nodes, other.leaving)


def find_blocks(graph: StoredGraph, states: Sequence[StateSpec]) -> tuple[Block, ...]:
    """Returns the blocks of a decoder graph in the order in which they are computed.

    Args:
        graph: the decoder.
        states: those of its manifest.
    """
    spans = _cut_spine(graph, {state.decoder_output for state in states if state.kind == "recurrent"})
    _attach_others(graph, spans)
    spans = _join_preparations(_join_finishes(spans, states), states)
    return tuple(_describe(span, graph, states) for span in spans)


def fold_blocks(blocks: Sequence[Block]) -> tuple[Repetition, ...]:
    """Returns blocks with those that repeat one another put together, the longest such stretch at each place."""
    folded = []
    start = 0
    while start < len(blocks):
        period, rounds = _longest_repetition(blocks[start:])
        end = start + period * rounds
        folded.append(Repetition(tuple(tuple(blocks[at : at + period]) for at in range(start, end, period))))
        start = end
    return tuple(folded)


def _longest_repetition(blocks: Sequence[Block]) -> tuple[int, int]:
    """Returns how many blocks from the first one on are repeated, and how often they are there."""
    best = (1, 1)
    for period in range(1, len(blocks) // 2 + 1):
        rounds = 1
        while _is_repeated(blocks, period, rounds):
            rounds += 1
        if rounds > 1 and period * rounds > best[0] * best[1]:
            best = (period, rounds)
    return best


def _is_repeated(blocks: Sequence[Block], period: int, rounds: int) -> bool:
    following = blocks[period * rounds : period * (rounds + 1)]
    return len(following) == period and all(
        one.form == other.form for one, other in zip(blocks, following, strict=False)
    )


def _cut_spine(graph: StoredGraph, recurrent_outputs: set[str | None]) -> list[_Span]:
    """Returns the nodes that depend on the last token, cut into spans."""
    dependent = {TOKENS}
    spine: list[Node] = []
    for node in graph.nodes:
        if node.operator not in SIZES and not dependent.isdisjoint(node.inputs):
            spine.append(node)
            dependent.update(node.outputs)
    last_use = {name: place for place, node in enumerate(spine) for name in node.inputs}
    spans: list[_Span] = []
    nodes: list[Node] = []
    live: dict[str, None] = {TOKENS: None}
    for place, node in enumerate(spine):
        nodes.append(node)
        live |= dict.fromkeys(node.outputs)
        live = {name: None for name in live if last_use.get(name, -1) > place}
        if len(live) <= 1 or not recurrent_outputs.isdisjoint(node.outputs):
            spans.append(_Span(nodes, tuple(live)))
            nodes = []
    return spans


def _attach_others(graph: StoredGraph, spans: Sequence[_Span]) -> None:
    """Gives every node beside the spine to the first span that uses its result; to the last one if none does."""
    first_use: dict[str, int] = {}
    for number, span in reversed(list(enumerate(spans))):
        first_use |= dict.fromkeys(span.read, number)
    on_spine = {name for span in spans for name in span.written}
    for node in reversed(graph.nodes):
        if on_spine.isdisjoint(node.outputs):
            number = min(first_use.get(name, len(spans) - 1) for name in node.outputs)
            spans[number].nodes.insert(0, node)
            for name in node.inputs:
                first_use[name] = min(number, first_use.get(name, number))


def _join_finishes(spans: Iterable[_Span], states: Sequence[StateSpec]) -> list[_Span]:
    """Joins what has neither a product nor a state, such as a normalization, to what it comes after."""
    inputs = {state.decoder_input for state in states}
    joined: list[_Span] = []
    for span in spans:
        stands_alone = not inputs.isdisjoint(span.read) or any(node.operator in PRODUCTS for node in span.nodes)
        joined.append(span if stands_alone or not joined else joined.pop().followed_by(span))
    return joined


def _join_preparations(spans: Iterable[_Span], states: Sequence[StateSpec]) -> list[_Span]:
    """Joins a recurrent update to the products that prepare it."""
    recurrent = {state.decoder_input for state in states if state.kind == "recurrent"}
    more_than_preparation = {TOKENS, *(state.decoder_input for state in states if state.kind != "recurrent")}
    outputs = {state.decoder_output for state in states}
    joined: list[_Span] = []
    for span in spans:
        whole = span
        while joined and not recurrent.isdisjoint(whole.read):
            if not more_than_preparation.isdisjoint(joined[-1].read) or not outputs.isdisjoint(joined[-1].written):
                break
            whole = joined.pop().followed_by(whole)
        joined.append(whole)
    return joined


def _describe(span: _Span, graph: StoredGraph, states: Sequence[StateSpec]) -> Block:
    read, written = span.read, span.written
    reads = tuple(state for state in states if state.decoder_input in read)
    # A source that an operator gives back has not changed.
    writes = tuple(state for state in states if state.decoder_output in written and state.kind != "source")
    leaving = (*span.leaving, *(name for name in (LOGITS,) if name in written))
    weights = [weight for name, weight in graph.weights.items() if name in read and weight.is_parameter]
    return Block(
        title=_title(reads, writes, has_tokens=TOKENS in read, has_logits=LOGITS in written),
        nodes=len(span.nodes),
        matrices=tuple(weight for weight in weights if len(weight.shape) > 1),
        reads=reads,
        writes=writes,
        carries=tuple(graph.tensors[name] for name in leaving if name in graph.tensors),
    )


def _title(reads: Sequence[StateSpec], writes: Sequence[StateSpec], *, has_tokens: bool, has_logits: bool) -> str:
    kinds = dict.fromkeys([*(s.kind for s in reads if s.kind != "recurrent"), *(s.kind for s in writes)])
    titles = [TITLES[kind] for kind in kinds]
    if has_tokens:
        titles.insert(0, "embedding")
    if has_logits:
        titles.append("projection")
    return ", ".join(titles) or "feed-forward"
