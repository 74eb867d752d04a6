"""Reads stored ONNX graphs. Of weights only digests are kept, which identify those that two graphs share."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import onnx
from google.protobuf.message import DecodeError
from onnx import helper, numpy_helper
from onnx.checker import ValidationError

from dragoman.model.errors import reason_of
from dragoman.serve.bundle.bundle import BundleError

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
class StoredGraph:
    """The tensors of a graph."""

    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    weights: Mapping[str, Weight]


def read_graph(path: Path) -> StoredGraph:
    """Reads a graph with its weights; raises BundleError if the file is no ONNX graph, or weights cannot be read."""
    graph = _load(path)
    inputs, outputs = (tuple(map(_type, values)) for values in (graph.input, graph.output))
    weights = {tensor.name: _weight(tensor, path) for tensor in graph.initializer}
    return StoredGraph(inputs, outputs, weights)


def count_operators(path: Path) -> dict[str, int]:
    """Counts the nodes of each operator, most frequent first; raises BundleError if the file is no ONNX graph.

    Operators that are not standard have their domain as prefix.
    """
    counts = Counter(f"{node.domain}.{node.op_type}".removeprefix(".") for node in _load(path).node)
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
