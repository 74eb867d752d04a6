"""What the decoder remembers of every slot, in slot-major arrays that ONNX Runtime reads and writes.

A bundle lists its state tensors (`serve.bundle.manifest.StateSpec`): keys and values of attention, or the state of a
recurrent network. Each is one array [slots, *shape]. A step binds the first R slots: because slots are the outermost
axis, that is a view and copies nothing. Tensors of one shape, such as the keys and values of all layers, lie behind
each other, so that a slot is copied in all of them at once. This module knows neither sequences nor ONNX Runtime.

In place of a named length the arrays have a *capacity*: the positions that every slot has room for. Where operators
read a row no further than its own length, the capacity follows the longest row that is there. The less room there is
between what a step reads, the less it waits for memory.

State tensors of one shape, for all slots of an engine, in memory that they share.

Used by `serve.runtime.kv_cache`, which knows how long the rows are. Knows neither rows nor ONNX Runtime.
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

    def resize(self, capacity: int, occupied: int) -> None:
        """Gives every slot room for another number of positions; what the first slots hold stays as far as it fits.

        Args:
            capacity: positions, at most the limit.
            occupied: slots that hold anything.
        """
        old, self.values = self.values, self._laid_out(capacity)
        length = min(capacity, old.shape[2 + self._before_length])
        tensors = range(len(self.specs))
        # Old and new places overlap: each tensor moves when no other lies any more where it goes.
        for tensor in reversed(tensors) if self.values.size > old.size else tensors:
            self._valid(self.values, length)[tensor, :occupied] = self._valid(old, length)[tensor, :occupied].copy()

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


# Most sentences fit into it. Fewer rows than many gain nothing from less room.
FIRST_CAPACITY_TOKENS = 32
MANY_ROWS = 8
# Less room than these give would take more moves than it is worth.
CAPACITY_STEP_TOKENS = 4
STEPS_BETWEEN_LOOKS = 8


class DecoderState:
    """The state tensors of one engine.

    Attributes:
        slots: the most rows.
        capacities: positions that every slot has room for, by the name of the length.
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
        """Starts with zeros.

        Args:
            specs: the tensors.
            slots: the most rows.
            max_source_tokens: the longest source of any row.
            max_target_tokens: the most positions that any row decodes.
            tight: lengths whose capacity may be any that the rows fit into; that of others is the most of any row.
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
        """By the name of the decoder's input, the array to bind to it, float32 or int8 [slots, *shape].

        They lie elsewhere after a capacity has changed, as the outputs do.
        """
        return {spec.decoder_input: block.values[index] for spec, (block, index) in self._places.items()}

    @property
    def outputs(self) -> dict[str, Array]:
        """By the name of the decoder's output, the array to bind to it, float32 or int8 [slots, *shape]."""
        return {
            spec.decoder_output: block.outputs[index]
            for spec, (block, index) in self._places.items()
            if spec.decoder_output is not None
        }

    def write(self, slots: NDArray[np.int64], source_lengths: NDArray[np.int32], encoded: Sequence[Array]) -> None:
        """Keeps what the encoder computed for B sequences.

        Args:
            slots: the slot of each sequence, int64 [B].
            source_lengths: int32 [B].
            encoded: the source and recurrent states in the bundle's order, each [B, *shape]; the source length is at
                most the limit.
        """
        longest = int(source_lengths.max())
        if longest > self.capacities["source"]:
            self._resize("source", _rounded(longest))
        self._source_lengths[slots] = source_lengths
        self._occupied = max(self._occupied, int(slots.max()) + 1)
        for (block, index), new in zip(self._encoded, encoded, strict=True):
            block.write(index, slots, new, longest)

    def fit(self, occupied: int, target_tokens: int) -> None:
        """Makes room for a step, and now and then gives up what no row needs; the other slots hold nothing any more.

        Args:
            occupied: slots that hold anything: those of the step, and others behind them that take no part in it.
            target_tokens: the most positions that any of them has with this step.
        """
        self._occupied = occupied
        if target_tokens > self.capacities["target"]:
            # Few rows need no tight room, but would lay themselves out anew every few steps.
            self._resize("target", _rounded(target_tokens) if occupied >= MANY_ROWS else 2 * target_tokens)
        self._steps = (self._steps + 1) % STEPS_BETWEEN_LOOKS
        if self._steps == 0 and occupied >= MANY_ROWS:
            longest = {"source": int(self._source_lengths[:occupied].max()), "target": target_tokens}
            for length in self._tight:
                if (capacity := _rounded(longest[length])) < self.capacities[length]:
                    self._resize(length, capacity)

    def advance(self, rows: int) -> None:
        """Makes what a step of the first `rows` slots wrote the state that the next step reads."""
        for block in self._decoded:
            block.advance(rows)

    def copy(self, source: int, target: int, *, source_length: int, target_length: int) -> None:
        """Copies the valid part of one slot over that of another.

        Args:
            source: the slot to copy.
            target: the slot to overwrite.
            source_length: valid positions of source states.
            target_length: valid positions of target states.
        """
        self._source_lengths[target] = source_length
        self._occupied = max(self._occupied, target + 1)
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
