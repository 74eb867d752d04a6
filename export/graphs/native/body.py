"""Builds function bodies from standard operators: nodes in order, under generated names, and constants once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import ArrayLike, NDArray
from onnx import helper, numpy_helper


class Body:
    """The nodes of a function."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def add(self, operator: str, *inputs: str, into: str | None = None, **attributes: Any) -> str:
        """Adds a node; returns the name of its output, which is `into` or generated."""
        output = into or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def split(self, value: str, parts: int, axis: int) -> list[str]:
        """Splits a tensor into equal parts."""
        outputs = [f"split_{len(self.nodes)}_{part}" for part in range(parts)]
        self.nodes.append(helper.make_node("Split", [value], outputs, axis=axis, num_outputs=parts))
        return outputs

    def integers(self, *values: int) -> str:
        """Returns a constant, int64 [len(values)]."""
        return self.constant(np.array(values, np.int64))

    def number(self, value: ArrayLike) -> str:
        """Returns a constant of float32."""
        return self.constant(np.array(value, np.float32))

    def constant(self, value: NDArray[np.generic]) -> str:
        """Returns a constant."""
        key = value.dtype.str, value.shape, value.tobytes()
        if key not in self._constants:
            self._constants[key] = self.add("Constant", value=numpy_helper.from_array(value))
        return self._constants[key]

    def cast(self, value: str, kind: int) -> str:
        """Converts a tensor to a type of ONNX."""
        return self.add("Cast", value, to=kind)

    def reshape(self, value: str, *shape: int) -> str:
        """Changes the shape; 0 keeps an axis, and -1 takes what is left."""
        return self.add("Reshape", value, self.integers(*shape))

    def transpose(self, value: str, *order: int) -> str:
        """Changes the order of the axes."""
        return self.add("Transpose", value, perm=order)

    def first(self, value: str, count: int, axis: int) -> str:
        """Returns the first `count` indices of an axis."""
        return self.add("Slice", value, *(self.integers(number) for number in (0, count, axis)))

    def last(self, value: str, axis: int) -> str:
        """Returns the last index of an axis, which stays."""
        return self.add("Slice", value, *(self.integers(item) for item in (-1, np.iinfo(np.int64).max, axis)))

    def largest(self, value: str, *axes: int) -> str:
        """Returns the maximum over axes, which stay."""
        return self.add("ReduceMax", value, self.integers(*axes), keepdims=1)

    def total(self, value: str, axis: int) -> str:
        """Returns the sum over an axis, which stays, in its order.

        The bits do not change if zeros follow, as the empty blocks of a row do in a batch with longer rows.
        """
        return self.last(self.add("CumSum", value, self.constant(np.array(axis, np.int64))), axis)

    def top(self, value: str, count: str, ids: str) -> str:
        """Returns the `count` largest of each row, the largest first; their indices become the tensor `ids`."""
        output = f"topk_{len(self.nodes)}"
        self.nodes.append(helper.make_node("TopK", [value, count], [output, ids], axis=-1))
        return output

    def unsqueeze(self, value: str, *axes: int) -> str:
        """Inserts axes of size 1."""
        return self.add("Unsqueeze", value, self.integers(*axes))

    def concat(self, values: Sequence[str], axis: int) -> str:
        """Concatenates tensors."""
        return self.add("Concat", *values, axis=axis)
