"""An ONNX graph as it is stored: what goes in and out, its operators, its weights. Called by `dragoman inspect`.

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
