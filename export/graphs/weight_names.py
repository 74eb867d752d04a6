"""The names of weights in a graph: what the exporter computed of a parameter is called after it again.

The exporter stores the matrix of a product transposed, under a number. Named, a graph can be read by people, and a
model can be had back from its bundle.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper
from torch import Tensor

TRANSPOSED = ".transposed"
MATRIX_DIMENSIONS = 2


def name_weights(graph: onnx.GraphProto, parameters: Mapping[str, Tensor]) -> None:
    """Names every transposed matrix of a graph after the parameter that it was made of.

    Args:
        graph: with its weights inside; changed in place.
        parameters: of the module that it was exported from.
    """
    matrices = {
        name: parameter.detach().numpy().T.copy()
        for name, parameter in parameters.items()
        if parameter.dim() == MATRIX_DIMENSIONS
    }
    names: dict[str, str] = {}
    taken: set[str] = set()
    for tensor in graph.initializer:
        if tensor.name in parameters or len(tensor.dims) != MATRIX_DIMENSIONS:
            continue
        value = numpy_helper.to_array(tensor)
        for name, matrix in matrices.items():
            if name not in taken and value.shape == matrix.shape and np.array_equal(value, matrix):
                names[tensor.name] = f"{name}{TRANSPOSED}"
                taken.add(name)
                break
    for tensor in graph.initializer:
        tensor.name = names.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]


def read_weights(path: Path) -> dict[str, NDArray[np.float32]]:
    """Returns the weights of a graph by the names of their parameters, in the shapes of those.

    Args:
        path: of a graph that `name_weights` has named.

    Raises:
        onnx.checker.ValidationError, google.protobuf.message.DecodeError, OSError: if the file is no such graph.
    """
    graph = onnx.load(path).graph
    weights = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    return {
        name.removesuffix(TRANSPOSED): value.T if name.endswith(TRANSPOSED) else value
        for name, value in weights.items()
    }
