"""Reads stored ONNX graphs, and splits a decoder step into blocks: attention, feed-forward, recurrent updates.

The spine is the set of nodes that depend on the last token. A block ends where a single tensor of the spine carries all
later results, for example between residual connections, or where a recurrent state gets its next value. Other nodes,
such as masks, belong to the first block that uses them. The algorithm does not depend on the architecture.

Of weights only digests are kept, which identify those that two graphs share.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import helper, numpy_helper
from onnx.checker import ValidationError

from dragoman.model.errors import reason_of
from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.bundle.manifest import DECODER_INPUTS, LOGITS, StateSpec

# Types of sizes, indices and masks; numbers of other types are parameters or derived from them.
STRUCTURAL_TYPES = ("int32", "int64", "bool")


@dataclass(frozen=True, slots=True)
class TensorType:
    """Name, type and shape of a tensor."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class Weight:
    """A constant tensor of a graph; a matrix and its transpose have the same `digest`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    digest: str

    @property
    def is_parameter(self) -> bool:
        """True for numbers of the computation: not sizes, indices or scalar constants."""
        return bool(self.shape) and self.dtype not in STRUCTURAL_TYPES


@dataclass(frozen=True, slots=True)
class Node:
    """One operator, without omitted optional inputs. Non-standard operators have their domain as prefix."""

    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """A graph with nodes in topological order."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    nodes: tuple[Node, ...]
    weights: Mapping[str, Weight]


def read_graph(path: Path) -> StoredGraph:
    """Reads a graph with its weights; raises BundleError if the file is no ONNX graph, or weights cannot be read."""
    graph = _load(path)
    inputs, outputs = (tuple(map(_type, values)) for values in (graph.input, graph.output))
    weights = {tensor.name: _weight(tensor, path) for tensor in graph.initializer}
    return StoredGraph(inputs, outputs, tuple(map(_node, graph.node)), weights)


def count_operators(path: Path) -> dict[str, int]:
    """Counts the nodes of each operator, most frequent first; raises BundleError if the file is no ONNX graph."""
    counts = Counter(_node(node).operator for node in _load(path).node)
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def distinct_weights(graphs: Iterable[StoredGraph]) -> tuple[Weight, ...]:
    """Returns the weights of all graphs, shared ones once."""
    weights = [weight for graph in graphs for weight in graph.weights.values()]
    return tuple({(weight.dtype, weight.shape, weight.digest): weight for weight in weights}.values())


def count_parameters(weights: Iterable[Weight]) -> dict[str, int]:
    """Counts the parameters of each type; a matrix and its stored transpose count once."""
    parameters = {(weight.dtype, weight.digest): weight for weight in weights if weight.is_parameter}
    counts: Counter[str] = Counter()
    for weight in parameters.values():
        counts[weight.dtype] += prod(weight.shape)
    return dict(counts)


def _load(path: Path) -> onnx.GraphProto:
    try:
        return onnx.load(path, load_external_data=False).graph
    except DecodeError as error:
        raise BundleError(f"{path}: expected an ONNX graph: {error}") from error


def _node(node: onnx.NodeProto) -> Node:
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return Node(operator, tuple(filter(None, node.input)), tuple(filter(None, node.output)))


def _type(value: onnx.ValueInfoProto) -> TensorType:
    tensor = value.type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    shape = tuple(size.dim_value if size.HasField("dim_value") else size.dim_param for size in tensor.shape.dim)
    return TensorType(value.name, dtype.name, shape)


def _weight(tensor: onnx.TensorProto, graph: Path) -> Weight:
    try:
        values = numpy_helper.to_array(tensor, str(graph.parent))
    except (OSError, ValueError, ValidationError) as error:
        raise BundleError(f"{graph}: {tensor.name}: {reason_of(error)}") from error
    orders = (values, values.T) if values.ndim == 2 else (values,)  # noqa: PLR2004 - a matrix has two axes
    digest = min(hashlib.sha256(order.tobytes()).hexdigest() for order in orders)
    return Weight(tensor.name, values.dtype.name, values.shape, values.nbytes, digest)


TOKENS = DECODER_INPUTS[0]
# A block needs one of these; other nodes normalize or rearrange the previous block's result.
PRODUCTS = ("MatMul", "Gemm")
# They read shapes, not values: reading the size of a state does not make it an input of the block.
SIZES = ("Shape", "Size")
TITLES = {"target": "self-attention", "source": "cross-attention", "recurrent": "recurrent update"}


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a decoder step: it reads states and matrices (weights with at least two axes) and writes states.

    `nodes` is 0 for a part of a native operator.
    """

    title: str
    nodes: int
    matrices: tuple[Weight, ...]
    reads: tuple[StateSpec, ...]
    writes: tuple[StateSpec, ...]

    @property
    def form(self) -> tuple[object, ...]:
        """A key that is equal for blocks that differ only in weights and states."""
        return (
            self.title,
            sorted((matrix.dtype, matrix.shape) for matrix in self.matrices),
            [state.shape for state in self.reads],
            [state.shape for state in self.writes],
        )


@dataclass(frozen=True, slots=True)
class Repetition:
    """Adjacent blocks that repeat with the same form, for example layers; one round if there is no repetition."""

    rounds: tuple[tuple[Block, ...], ...]


@dataclass(frozen=True, slots=True)
class _Span:
    """Nodes of a block under construction."""

    nodes: list[Node]

    @property
    def read(self) -> set[str]:
        return {name for node in self.nodes if node.operator not in SIZES for name in node.inputs}

    @property
    def written(self) -> set[str]:
        return {name for node in self.nodes for name in node.outputs}

    def followed_by(self, other: "_Span") -> "_Span":
        return _Span(self.nodes + other.nodes)


def find_blocks(graph: StoredGraph, states: Sequence[StateSpec]) -> tuple[Block, ...]:
    """Splits a decoder graph into blocks, in order of computation."""
    spans = _cut_spine(graph, {state.decoder_output for state in states if state.kind == "recurrent"})
    _attach_others(graph, spans)
    spans = _join_preparations(_join_finishes(spans, states), states)
    return tuple(_describe(span, graph, states) for span in spans)


def fold_blocks(blocks: Sequence[Block]) -> tuple[Repetition, ...]:
    """Groups repeated blocks; takes the longest repetition at each position."""
    folded = []
    start = 0
    while start < len(blocks):
        period, rounds = _longest_repetition(blocks[start:])
        end = start + period * rounds
        folded.append(Repetition(tuple(tuple(blocks[at : at + period]) for at in range(start, end, period))))
        start = end
    return tuple(folded)


def _longest_repetition(blocks: Sequence[Block]) -> tuple[int, int]:
    """Returns the period in blocks, and the number of rounds, of the longest repetition at the start."""
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
    """Returns the nodes that depend on the last token, split into spans."""
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
            spans.append(_Span(nodes))
            nodes = []
    return spans


def _attach_others(graph: StoredGraph, spans: Sequence[_Span]) -> None:
    """Adds every other node to the first span that uses its result, or to the last span if none does."""
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
    """Joins spans without product or state, such as a normalization, to the previous span."""
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
    writes = tuple(state for state in states if state.decoder_output in written)
    weights = [weight for name, weight in graph.weights.items() if name in read and weight.is_parameter]
    return Block(
        title=_title(reads, writes, has_tokens=TOKENS in read, has_logits=LOGITS in written),
        nodes=len(span.nodes),
        matrices=tuple(weight for weight in weights if len(weight.shape) > 1),
        reads=reads,
        writes=writes,
    )


def _title(reads: Sequence[StateSpec], writes: Sequence[StateSpec], *, has_tokens: bool, has_logits: bool) -> str:
    kinds = dict.fromkeys([*(s.kind for s in reads if s.kind != "recurrent"), *(s.kind for s in writes)])
    titles = [TITLES[kind] for kind in kinds]
    if has_tokens:
        titles.insert(0, "embedding")
    if has_logits:
        titles.append("projection")
    return ", ".join(titles) or "feed-forward"
