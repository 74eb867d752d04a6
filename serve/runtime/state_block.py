"""State tensors of one shape, for all slots of an engine, in memory that they share.

Used by `serve.runtime.kv_cache`, which knows how long the rows are. Knows neither rows nor ONNX Runtime.
"""

import math
import mmap

import numpy as np
from numpy.typing import NDArray

from serve.bundle.manifest import Element, StateSpec

Array = NDArray[np.float32] | NDArray[np.int8]
DTYPES: dict[Element, type[np.float32 | np.int8]] = {"float": np.float32, "int8": np.int8}


class StateBlock:
    """N state tensors of one shape and element, which lie behind each other.

    Attributes:
        specs: the tensors.
        kind: who writes them, and when.
        values: what the decoder reads, [N, slots, *shape]; of a target state also what it writes, in place.
        outputs: what the decoder writes, [N, slots, *shape]; of recurrent states other memory than it reads, for a
            graph may read the old value after it has written the new one.
    """

    def __init__(self, specs: tuple[StateSpec, ...], slots: int, *, limit: int, capacity: int) -> None:
        """Allocates memory, of which only those pages are taken that are written to.

        Args:
            specs: tensors of one shape and element.
            slots: the most rows.
            limit: positions of the longest row; states without a length have nothing of it.
            capacity: positions that every slot has room for at first.
        """
        self.specs = specs
        self.kind = specs[0].kind
        self._slots = slots
        self._memory = _zeros(math.prod(self._shape(limit)), specs[0].element)
        self.values = self._laid_out(capacity)
        self._replacements = np.zeros_like(self.values) if self.kind == "recurrent" else None
        self._before_length = next((axis for axis, size in enumerate(specs[0].shape) if isinstance(size, str)), 0)

    @property
    def outputs(self) -> Array:
        """What the decoder writes, [N, slots, *shape]."""
        return self.values if self._replacements is None else self._replacements

    def resize(self, capacity: int, held: int) -> None:
        """Gives every slot room for another number of positions; what the first slots hold stays as far as it fits.

        Args:
            capacity: positions, at most the limit.
            held: slots that hold anything.
        """
        old, self.values = self.values, self._laid_out(capacity)
        length = min(capacity, old.shape[2 + self._before_length])
        tensors = range(len(self.specs))
        # Old and new places overlap: each tensor moves when no other lies any more where it goes.
        for tensor in reversed(tensors) if self.values.size > old.size else tensors:
            self._valid(self.values, length)[tensor, :held] = self._valid(old, length)[tensor, :held].copy()

    def write(self, tensor: int, slots: NDArray[np.int64], new: Array, length: int) -> None:
        """Keeps the values of one tensor for B slots.

        Args:
            tensor: its place in `specs`.
            slots: int64 [B].
            new: [B, *shape].
            length: how much of them is valid.
        """
        self._valid(self.values, length)[tensor, slots] = self._valid(new[np.newaxis], length)[0]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copies the valid part of one slot over that of another."""
        valid = self._valid(self.values, length)
        valid[:, target] = valid[:, source]

    def advance(self, rows: int) -> None:
        """Makes what a step of the first slots wrote what the next one reads."""
        if self._replacements is not None:
            self.values[:, :rows] = self._replacements[:, :rows]

    def _shape(self, capacity: int) -> tuple[int, ...]:
        shape = (capacity if isinstance(size, str) else size for size in self.specs[0].shape)
        return len(self.specs), self._slots, *shape

    def _laid_out(self, capacity: int) -> Array:
        shape = self._shape(capacity)
        return self._memory[: math.prod(shape)].reshape(shape)

    def _valid(self, values: Array, length: int) -> Array:
        """Returns the part of all slots up to a length, which recurrent states have not."""
        if self.kind == "recurrent":
            return values
        return values[:, :, *(slice(None),) * self._before_length, :length]


def _zeros(size: int, element: Element) -> Array:
    """Returns zeros of which only the pages take memory that somebody has written to.

    Zeros, not garbage: a NaN behind the valid length could leak through a product with zero.
    """
    dtype = np.dtype(DTYPES[element])
    pages = mmap.mmap(-1, max(size, 1) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # NumPy asks for huge pages: one filled position would take 2 MB, the whole capacity of its head and of many more.
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype, size)
