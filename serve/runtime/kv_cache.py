"""The decoder state of one engine for graphs with states, in slot-major arrays that ONNX Runtime reads and writes.

Each tensor of the bundle (`dragoman.serve.bundle.manifest.StateSpec`) is one array [slots, *shape]. Slots are the
outermost axis, so that a step binds the first R slots as a view. Tensors of one shape are contiguous, and one copy
moves a slot in all. Every slot has room for the longest source and target; only written pages take memory.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle.manifest import Element, Length, StateSpec
from dragoman.serve.runtime.lazy_memory import lazy_zeros

Array = NDArray[np.float32] | NDArray[np.int8]
DTYPES: dict[Element, type[np.float32 | np.int8]] = {"float": np.float32, "int8": np.int8}


class StateBlock:
    """N state tensors of one shape and element type, contiguous in memory.

    Attributes:
        specs: the tensors.
        kind: the kind of state.
        values: what the decoder reads, [N, slots, *shape].
        outputs: what the decoder writes, of the same shape. Target states are written in place. Recurrent states have
            separate memory, since a graph may read an old value after it wrote the new one.
    """

    def __init__(self, specs: tuple[StateSpec, ...], slots: int, capacity: int) -> None:
        """Allocates zeros for `capacity` positions: garbage could hold NaN, and NaN times zero is NaN."""
        self.specs = specs
        self.kind = specs[0].kind
        shape = (capacity if isinstance(size, str) else size for size in specs[0].shape)
        self.values: Array = lazy_zeros((len(specs), slots, *shape), DTYPES[specs[0].element])
        self.outputs = np.zeros_like(self.values) if self.kind == "recurrent" else self.values
        self._before_length = next((axis for axis, size in enumerate(specs[0].shape) if isinstance(size, str)), 0)

    def write(self, tensor: int, slots: NDArray[np.int64], new: Array, length: int) -> None:
        """Writes the first `length` positions of `new`, [B, *shape], to B slots, int64 [B], of one tensor."""
        self._valid(self.values, length)[tensor, slots] = self._valid(new[np.newaxis], length)[0]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copies the valid part of one slot over that of another."""
        valid = self._valid(self.values, length)
        valid[:, target] = valid[:, source]

    def advance(self, rows: int) -> None:
        """Makes the outputs of a step of the first slots the inputs of the next."""
        if self.kind == "recurrent":
            self.values[:, :rows] = self.outputs[:, :rows]

    def _valid(self, values: Array, length: int) -> Array:
        """Returns all slots up to a length; recurrent states have no length and are returned whole."""
        if self.kind == "recurrent":
            return values
        return values[:, :, *(slice(None),) * self._before_length, :length]


class DecoderState:
    """The state tensors of one engine."""

    def __init__(
        self, specs: Iterable[StateSpec], *, slots: int, max_source_tokens: int, max_target_tokens: int
    ) -> None:
        """Allocates zeros.

        Args:
            slots: the most rows.
            max_source_tokens: source tokens of the longest row.
            max_target_tokens: positions that the longest row decodes.
        """
        capacities: dict[Length, int] = {"source": max_source_tokens, "target": max_target_tokens}
        specs = tuple(specs)
        alike = defaultdict[tuple[object, ...], list[StateSpec]](list)
        for spec in specs:
            alike[spec.shape, spec.element].append(spec)
        self._blocks = [
            StateBlock(tuple(members), slots, 0 if (kind := members[0].kind) == "recurrent" else capacities[kind])
            for members in alike.values()
        ]
        self._decoded = [block for block in self._blocks if block.kind != "source"]
        locations = {spec: (block, index) for block in self._blocks for index, spec in enumerate(block.specs)}
        self._locations = {spec: locations[spec] for spec in specs}
        self._encoded = [location for spec, location in self._locations.items() if spec.kind != "target"]

    @property
    def inputs(self) -> dict[str, Array]:
        """Decoder input name to array, float32 or int8 [slots, *shape]."""
        return {spec.decoder_input: block.values[index] for spec, (block, index) in self._locations.items()}

    @property
    def outputs(self) -> dict[str, Array]:
        """Decoder output name to array, float32 or int8 [slots, *shape]."""
        return {
            spec.decoder_output: block.outputs[index]
            for spec, (block, index) in self._locations.items()
            if spec.decoder_output is not None
        }

    def write(
        self, slots: Sequence[Sequence[int]], source_lengths: NDArray[np.int32], encoded: Sequence[Array]
    ) -> None:
        """Writes the encoder's results for B sources.

        Args:
            slots: those of each source.
            source_lengths: int32 [B].
            encoded: source and recurrent states in the bundle's order, each [B, *shape].
        """
        longest = int(source_lengths.max())
        sources, every = np.repeat(np.arange(len(slots)), list(map(len, slots))), np.concatenate(slots)
        for (block, index), new in zip(self._encoded, encoded, strict=True):
            block.write(index, every, new[sources], longest)

    def advance(self, rows: int) -> None:
        """Makes the outputs of a step of the first `rows` slots the inputs of the next."""
        for block in self._decoded:
            block.advance(rows)

    def branch(self, sources: Sequence[int], targets: Sequence[int], target_lengths: Sequence[int]) -> None:
        """Copies target and recurrent states between slots of the same source; no slot is both source and target."""
        for block in self._decoded:
            for source, target, length in zip(sources, targets, target_lengths, strict=True):
                block.copy(source, target, length)
