"""What the decoder remembers of every slot, in slot-major arrays that ONNX Runtime reads and writes.

A bundle lists its state tensors (`export.manifest.StateSpec`): keys and values of attention, or the state of a
recurrent network. Each is one array [slots, *shape], with the model's limit in place of a named length; memory is taken
only for positions that were ever filled. A step binds the first R slots: because slots are the outermost axis, that is
a view and copies nothing. Tensors of one shape, such as the keys and values of all layers, lie behind each other, so
that a slot is copied in all of them at once. This module knows neither sequences nor ONNX Runtime.
"""

import math
import mmap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from export.manifest import Element, StateSpec

Array = NDArray[np.float32] | NDArray[np.int8]
DTYPES: dict[Element, type[np.float32 | np.int8]] = {"float": np.float32, "int8": np.int8}


@dataclass(frozen=True)
class _Block:
    """State tensors of one shape and element, for all slots.

    Attributes:
        specs: the N tensors.
        values: what the decoder reads, [N, slots, *shape]; of a target state also what it writes, in place.
        replacements: of recurrent states what the decoder writes, for a graph may read the old value after it has
            written the new one.
    """

    specs: tuple[StateSpec, ...]
    values: Array
    replacements: Array | None

    @cached_property
    def kind(self) -> str:
        """Who writes the states, and when."""
        return self.specs[0].kind

    @cached_property
    def axes_before_length(self) -> tuple[slice, ...]:
        """Indices that keep what stands between slots and positions."""
        return (slice(None),) * next(
            (axis for axis, size in enumerate(self.specs[0].shape) if isinstance(size, str)), 0
        )

    @property
    def outputs(self) -> Array:
        """What the decoder writes, [N, slots, *shape]."""
        return self.values if self.replacements is None else self.replacements

    def valid(self, length: int) -> Array:
        """Returns the part of all slots up to a length, which recurrent states have not."""
        if self.kind == "recurrent":
            return self.values
        return self.values[:, :, *self.axes_before_length, :length]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copies the valid part of one slot over that of another."""
        valid = self.valid(length)
        valid[:, target] = valid[:, source]


class DecoderState:
    """The state tensors of one engine.

    Attributes:
        slots: the most rows.
        inputs: by the name of the decoder's input, the array to bind to it, float32 or int8 [slots, *shape].
        outputs: by the name of the decoder's output, the array to bind to it, float32 or int8 [slots, *shape].
    """

    def __init__(
        self, specs: Iterable[StateSpec], *, slots: int, max_source_tokens: int, max_target_tokens: int
    ) -> None:
        self.slots = slots
        specs = tuple(specs)
        lengths = {"source": max_source_tokens, "target": max_target_tokens}
        alike = defaultdict[tuple[object, ...], list[StateSpec]](list)
        for spec in specs:
            alike[spec.shape, spec.element].append(spec)
        self._blocks = [_allocate(tuple(members), slots, lengths) for members in alike.values()]
        self._decoded = [block for block in self._blocks if block.kind != "source"]
        places = {spec: (block, index) for block in self._blocks for index, spec in enumerate(block.specs)}
        self._encoded = [places[spec] for spec in specs if spec.kind != "target"]
        self.inputs = {spec.decoder_input: places[spec][0].values[places[spec][1]] for spec in specs}
        self.outputs = {
            spec.decoder_output: places[spec][0].outputs[places[spec][1]]
            for spec in specs
            if spec.decoder_output is not None
        }

    def write(self, slots: NDArray[np.int64], encoded: Sequence[Array]) -> None:
        """Keeps what the encoder computed for B sequences.

        Args:
            slots: the slot of each sequence, int64 [B].
            encoded: the source and recurrent states in the bundle's order, each [B, *shape]; the source length is at
                most the limit.
        """
        for (block, index), new in zip(self._encoded, encoded, strict=True):
            length = new.shape[1 + len(block.axes_before_length)] if block.kind == "source" else 0
            block.valid(length)[index, slots] = new

    def advance(self, rows: int) -> None:
        """Makes what a step of the first `rows` slots wrote the state that the next step reads."""
        for block in self._blocks:
            if block.replacements is not None:
                block.values[:, :rows] = block.replacements[:, :rows]

    def copy(self, source: int, target: int, *, source_length: int, target_length: int) -> None:
        """Copies the valid part of one slot over that of another.

        Args:
            source: the slot to copy.
            target: the slot to overwrite.
            source_length: valid positions of source states.
            target_length: valid positions of target states.
        """
        for block in self._blocks:
            block.copy(source, target, source_length if block.kind == "source" else target_length)

    def branch(self, sources: Sequence[int], targets: Sequence[int], target_lengths: Sequence[int]) -> None:
        """Copies what the decoder has written itself between slots of the same source.

        Args:
            sources: the slots to copy.
            targets: the slots to overwrite; none of them is a source.
            target_lengths: valid positions of target states in each.
        """
        for block in self._decoded:
            for source, target, length in zip(sources, targets, target_lengths, strict=True):
                block.copy(source, target, length)


def _allocate(specs: tuple[StateSpec, ...], slots: int, lengths: Mapping[str, int]) -> _Block:
    shape = (lengths[size] if isinstance(size, str) else size for size in specs[0].shape)
    values = _zeros((len(specs), slots, *shape), specs[0].element)
    return _Block(specs, values, np.zeros_like(values) if specs[0].kind == "recurrent" else None)


def _zeros(shape: tuple[int, ...], element: Element) -> Array:
    """Returns zeros of which only the pages take memory that somebody has written to.

    Zeros, not garbage: a NaN behind the valid length could leak through a product with zero.
    """
    size, dtype = math.prod(shape), np.dtype(DTYPES[element])
    pages = mmap.mmap(-1, max(size, 1) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # NumPy asks for huge pages: one filled position would take 2 MB, the whole capacity of its head and of many more.
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype, size).reshape(shape)
