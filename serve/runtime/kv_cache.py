"""The KV cache and other decoder state of one engine, in slot-major arrays that ONNX Runtime reads and writes.

Each tensor of the bundle (`serve.bundle.manifest.StateSpec`) is one array [slots, *shape]. Slots are the outermost
axis, so that a step binds the first R slots as a view. Tensors of one shape are contiguous, and one copy moves a slot
in all.

A named length has a *capacity*: positions that every slot has room for. If operators read each row only up to its valid
length, the capacity follows the longest row. A compact layout makes steps wait less for memory.
"""

import math
import mmap
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from serve.bundle.manifest import Element, Length, StateSpec

Array = NDArray[np.float32] | NDArray[np.int8]
DTYPES: dict[Element, type[np.float32 | np.int8]] = {"float": np.float32, "int8": np.int8}


class StateBlock:
    """N state tensors of one shape and element type, contiguous in memory.

    Attributes:
        specs: the tensors.
        kind: the kind of state.
        values: what the decoder reads, [N, slots, *shape].
    """

    def __init__(self, specs: tuple[StateSpec, ...], slots: int, *, limit: int, capacity: int) -> None:
        """Allocates memory for `limit` positions; pages take memory when they are first written."""
        self.specs = specs
        self.kind = specs[0].kind
        self._slots = slots
        self._memory = _zeros(math.prod(self._shape(limit)), specs[0].element)
        self.values = self._laid_out(capacity)
        self._replacements = np.zeros_like(self.values) if self.kind == "recurrent" else None
        self._before_length = next((axis for axis, size in enumerate(specs[0].shape) if isinstance(size, str)), 0)

    @property
    def outputs(self) -> Array:
        """What the decoder writes, [N, slots, *shape]: target states in place.

        Recurrent states have separate memory, since a graph may read an old value after it wrote the new one.
        """
        return self.values if self._replacements is None else self._replacements

    def resize(self, capacity: int, occupied: int) -> None:
        """Changes the number of positions per slot, at most to the limit; the first `occupied` slots keep what fits."""
        old, self.values = self.values, self._laid_out(capacity)
        length = min(capacity, old.shape[2 + self._before_length])
        tensors = range(len(self.specs))
        # Old and new places overlap: growth moves the last tensor first, shrinking the first, so that none is
        # overwritten.
        for tensor in reversed(tensors) if self.values.size > old.size else tensors:
            self._valid(self.values, length)[tensor, :occupied] = self._valid(old, length)[tensor, :occupied].copy()

    def write(self, tensor: int, slots: NDArray[np.int64], new: Array, length: int) -> None:
        """Writes the first `length` positions of `new`, [B, *shape], to B slots, int64 [B], of one tensor."""
        self._valid(self.values, length)[tensor, slots] = self._valid(new[np.newaxis], length)[0]

    def copy(self, source: int, target: int, length: int) -> None:
        """Copies the valid part of one slot over that of another."""
        valid = self._valid(self.values, length)
        valid[:, target] = valid[:, source]

    def advance(self, rows: int) -> None:
        """Makes the outputs of a step of the first slots the inputs of the next."""
        if self._replacements is not None:
            self.values[:, :rows] = self._replacements[:, :rows]

    def _shape(self, capacity: int) -> tuple[int, ...]:
        shape = (capacity if isinstance(size, str) else size for size in self.specs[0].shape)
        return len(self.specs), self._slots, *shape

    def _laid_out(self, capacity: int) -> Array:
        shape = self._shape(capacity)
        return self._memory[: math.prod(shape)].reshape(shape)

    def _valid(self, values: Array, length: int) -> Array:
        """Returns all slots up to a length; recurrent states have no length and are returned whole."""
        if self.kind == "recurrent":
            return values
        return values[:, :, *(slice(None),) * self._before_length, :length]


def _zeros(size: int, element: Element) -> Array:
    """Returns zeros in anonymous memory, of which only written pages take space.

    Garbage behind the valid length could hold NaN, and NaN times zero is NaN.
    """
    dtype = np.dtype(DTYPES[element])
    pages = mmap.mmap(-1, max(size, 1) * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # NumPy requests huge pages: one filled position would take 2 MB, more than the whole capacity of its head.
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, dtype, size)


# Enough for most sentences. With fewer than `MANY_ROWS` rows a smaller capacity saves nothing.
FIRST_CAPACITY_TOKENS = 32
MANY_ROWS = 8
# Finer steps would cost more in moves than they save.
CAPACITY_STEP_TOKENS = 4
STEPS_BETWEEN_LOOKS = 8


class DecoderState:
    """The state tensors of one engine.

    Attributes:
        slots: the most rows.
        capacities: positions per slot, by the name of the length.
    """

    def __init__(
        self,
        specs: Iterable[StateSpec],
        *,
        slots: int,
        max_source_tokens: int,
        max_target_tokens: int,
        tight: Collection[Length] = (),
    ) -> None:
        """Allocates zeros.

        Args:
            specs: the tensors.
            slots: the most rows.
            max_source_tokens: source tokens of the longest row.
            max_target_tokens: positions that the longest row decodes.
            tight: lengths whose capacity follows the longest row; others stay at the limit.
        """
        self.slots = slots
        self._limits: dict[Length, int] = {"source": max_source_tokens, "target": max_target_tokens}
        self._tight = frozenset(tight)
        self.capacities = {
            length: min(FIRST_CAPACITY_TOKENS, limit) if length in self._tight else limit
            for length, limit in self._limits.items()
        }
        self._source_lengths = np.zeros(slots, np.int32)
        self._occupied = 0
        self._steps = 0
        specs = tuple(specs)
        alike = defaultdict[tuple[object, ...], list[StateSpec]](list)
        for spec in specs:
            alike[spec.shape, spec.element].append(spec)
        self._blocks = [self._allocate(tuple(members)) for members in alike.values()]
        self._decoded = [block for block in self._blocks if block.kind != "source"]
        places = {spec: (block, index) for block in self._blocks for index, spec in enumerate(block.specs)}
        self._places = {spec: places[spec] for spec in specs}
        self._encoded = [place for spec, place in self._places.items() if spec.kind != "target"]

    @property
    def inputs(self) -> dict[str, Array]:
        """Decoder input name to array, float32 or int8 [slots, *shape]; a change of capacity moves all arrays."""
        return {spec.decoder_input: block.values[index] for spec, (block, index) in self._places.items()}

    @property
    def outputs(self) -> dict[str, Array]:
        """Decoder output name to array, float32 or int8 [slots, *shape]."""
        return {
            spec.decoder_output: block.outputs[index]
            for spec, (block, index) in self._places.items()
            if spec.decoder_output is not None
        }

    def write(self, slots: NDArray[np.int64], source_lengths: NDArray[np.int32], encoded: Sequence[Array]) -> None:
        """Writes the encoder's results for B sequences.

        Args:
            slots: int64 [B].
            source_lengths: int32 [B].
            encoded: source and recurrent states in the bundle's order, each [B, *shape].
        """
        longest = int(source_lengths.max())
        if longest > self.capacities["source"]:
            self._resize("source", _rounded(longest))
        self._source_lengths[slots] = source_lengths
        self._occupied = max(self._occupied, int(slots.max()) + 1)
        for (block, index), new in zip(self._encoded, encoded, strict=True):
            block.write(index, slots, new, longest)

    def fit(self, occupied: int, target_tokens: int) -> None:
        """Makes room for a step, and every few steps shrinks capacities that no row needs.

        Args:
            occupied: occupied slots, prefetched ones included; the slots behind them are lost.
            target_tokens: positions of the longest row, this step included.
        """
        self._occupied = occupied
        if target_tokens > self.capacities["target"]:
            # For few rows growth by doubling avoids frequent moves; a tight capacity would save nothing.
            self._resize("target", _rounded(target_tokens) if occupied >= MANY_ROWS else 2 * target_tokens)
        self._steps = (self._steps + 1) % STEPS_BETWEEN_LOOKS
        if self._steps == 0 and occupied >= MANY_ROWS:
            longest = {"source": int(self._source_lengths[:occupied].max()), "target": target_tokens}
            for length in self._tight:
                if (capacity := _rounded(longest[length])) < self.capacities[length]:
                    self._resize(length, capacity)

    def advance(self, rows: int) -> None:
        """Makes the outputs of a step of the first `rows` slots the inputs of the next."""
        for block in self._decoded:
            block.advance(rows)

    def copy(self, source: int, target: int, *, source_length: int, target_length: int) -> None:
        """Copies the valid positions of source and target states from one slot to another."""
        self._source_lengths[target] = source_length
        self._occupied = max(self._occupied, target + 1)
        for block in self._blocks:
            block.copy(source, target, source_length if block.kind == "source" else target_length)

    def branch(self, sources: Sequence[int], targets: Sequence[int], target_lengths: Sequence[int]) -> None:
        """Copies target and recurrent states between slots of the same source; no slot is both source and target."""
        for block in self._decoded:
            for source, target, length in zip(sources, targets, target_lengths, strict=True):
                block.copy(source, target, length)

    def _allocate(self, specs: tuple[StateSpec, ...]) -> StateBlock:
        length = specs[0].kind
        if length == "recurrent":
            return StateBlock(specs, self.slots, limit=0, capacity=0)
        return StateBlock(specs, self.slots, limit=self._limits[length], capacity=self.capacities[length])

    def _resize(self, length: Length, capacity: int) -> None:
        self.capacities[length] = min(capacity, self._limits[length])
        for block in self._blocks:
            if block.kind == length:
                block.resize(self.capacities[length], self._occupied)


def _rounded(tokens: int) -> int:
    return -(-tokens // CAPACITY_STEP_TOKENS) * CAPACITY_STEP_TOKENS
