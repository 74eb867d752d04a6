"""The tensors of a foreign model, taken by name: what is missing or left over is told.

Both importers use it; knows no format.
"""

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import torch
from torch import Tensor

from export.imports.common import ImportedModelError

MATRIX_DIMENSIONS = 2


class Tensors:
    """Tensors to be taken; leaving the context, none may be left: it would belong to something we do not compute."""

    def __init__(self, path: Path, tensors: Mapping[str, object]) -> None:
        self._path = path
        self._left = dict(tensors)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None and self._left:
            names = sorted(self._left)
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise ImportedModelError(f"{self._path}: {names[0]}{more}: no model of ours has it, expected nothing else")

    def take(self, name: str, shape: tuple[int, ...] | None = None) -> Tensor:
        """Returns a tensor, float32; of any shape, or of the one expected.

        Raises:
            ImportedModelError: if there is none of this name and shape.
        """
        tensor = self.take_optional(name)
        if tensor is None:
            raise ImportedModelError(f"{self._path}: {name}: is missing")
        if shape is not None and tensor.shape != shape:
            raise ImportedModelError(f"{self._path}: {name}: shape is {tuple(tensor.shape)}, expected {shape}")
        return tensor

    def has(self, name: str) -> bool:
        """Returns whether a tensor is there and not taken yet."""
        return name in self._left

    def take_matrix(self, name: str) -> Tensor:
        """Returns a tensor of two dimensions, float32.

        Raises:
            ImportedModelError: if there is none of this name.
        """
        tensor = self.take(name)
        if tensor.dim() != MATRIX_DIMENSIONS:
            raise ImportedModelError(f"{self._path}: {name}: shape is {tuple(tensor.shape)}, expected a matrix")
        return tensor

    def take_optional(self, name: str) -> Tensor | None:
        """Returns a tensor, float32, or None."""
        tensor = self._left.pop(name, None)
        if tensor is None:
            return None
        if not isinstance(tensor, Tensor):
            raise ImportedModelError(f"{self._path}: {name}: expected a tensor")
        return tensor.float()


def grown(weight: Tensor, rows: int) -> Tensor:
    """Returns a matrix with rows of zeros added, up to a number of rows."""
    # What is no matrix stays as it is, for whoever checks shapes.
    if weight.dim() != MATRIX_DIMENSIONS or len(weight) >= rows:
        return weight
    return torch.cat((weight, weight.new_zeros(rows - len(weight), weight.shape[1])))
