"""The decoder state of one engine for graphs with states, in slot-major arrays that ONNX Runtime reads and writes.

Each tensor of the bundle (`dragoman.serve.bundle.manifest.StateSpec`) is one array, float32 [slots, *shape]. Slots are
the outermost axis, so that a step binds the first R slots as a view. Every slot has room for the longest source; only
written pages take memory.
"""

import math
import mmap
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dragoman.serve.bundle.manifest import StateSpec

Array = NDArray[np.float32]


class DecoderState:
    """The source and recurrent states of one engine.

    `inputs` and `outputs` are arrays by their names in the decoder, float32 [slots, *shape], in the order of the
    bundle. Only recurrent states have outputs, in separate memory, since a graph may read an old value after it wrote
    the new one.
    """

    def __init__(self, specs: Iterable[StateSpec], *, slots: int, max_source_tokens: int) -> None:
        """Allocates zeros: garbage could hold NaN, and NaN times zero is NaN. No spec has a target length."""
        self.inputs: dict[str, Array] = {}
        self.outputs: dict[str, Array] = {}
        self._lengths: list[tuple[Array, int | None]] = []
        self._recurrent: list[tuple[Array, Array]] = []
        for spec in specs:
            shape = [max_source_tokens if isinstance(size, str) else size for size in spec.shape]
            values = self.inputs[spec.decoder_input] = lazy_zeros((slots, *shape), np.float32)
            self._lengths.append((values, spec.length_axis))
            if spec.decoder_output is not None:
                self.outputs[spec.decoder_output] = following = np.zeros_like(values)
                self._recurrent.append((values, following))

    def write(
        self, slots: Sequence[Sequence[int]], source_lengths: NDArray[np.int32], encoded: Sequence[Array]
    ) -> None:
        """Writes the encoder's results for B sources, each with its slots and its length, int32 [B].

        `encoded` has the states in the bundle's order, each [B, *shape].
        """
        longest = int(source_lengths.max())
        sources, every = np.repeat(np.arange(len(slots)), list(map(len, slots))), np.concatenate(slots)
        for (values, axis), new in zip(self._lengths, encoded, strict=True):
            valid = () if axis is None else (slice(None),) * axis + (slice(longest),)
            values[(every, *valid)] = new[(sources, *valid)]

    def advance(self, rows: int) -> None:
        """Makes the outputs of a step of the first `rows` slots the inputs of the next."""
        for values, following in self._recurrent:
            values[:rows] = following[:rows]

    def branch(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copies recurrent states between slots of the same source; no slot is both source and target."""
        for values, _ in self._recurrent:
            values[list(targets)] = values[list(sources)]


def lazy_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Returns zeros; pages take memory when they are first written."""
    kind, size = np.dtype(dtype), math.prod(shape)
    pages = mmap.mmap(-1, max(size, 1) * kind.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # NumPy requests huge pages: one filled position would take 2 MB, more than the whole capacity of its head.
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, kind, size).reshape(shape)
