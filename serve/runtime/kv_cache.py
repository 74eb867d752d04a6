"""What the decoder remembers of every slot, in slot-major arrays that ONNX Runtime reads and writes.

A bundle lists its state tensors (`serve.bundle.manifest.StateSpec`): keys and values of attention, or the state of a
recurrent network. Each is one array [slots, *shape]. A step binds the first R slots: because slots are the outermost
axis, that is a view and copies nothing. Tensors of one shape, such as the keys and values of all layers, lie behind
each other, so that a slot is copied in all of them at once. This module knows neither sequences nor ONNX Runtime.

In place of a named length the arrays have a *capacity*: the positions that every slot has room for. Where operators
read a row no further than its own length, the capacity follows the longest row that is there. The less room there is
between what a step reads, the less it waits for memory.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from serve.bundle.manifest import Length, StateSpec
from serve.runtime.state_block import Array, StateBlock

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
        self._held = 0
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
        self._held = max(self._held, int(slots.max()) + 1)
        for (block, index), new in zip(self._encoded, encoded, strict=True):
            block.write(index, slots, new, longest)

    def fit(self, held: int, target_tokens: int) -> None:
        """Makes room for a step, and now and then gives up what no row needs; the other slots hold nothing any more.

        Args:
            held: slots that hold anything: those of the step, and others behind them that take no part in it.
            target_tokens: the most positions that any of them has with this step.
        """
        self._held = held
        if target_tokens > self.capacities["target"]:
            # Few rows need no tight room, but would lay themselves out anew every few steps.
            self._resize("target", _rounded(target_tokens) if held >= MANY_ROWS else 2 * target_tokens)
        self._steps = (self._steps + 1) % STEPS_BETWEEN_LOOKS
        if self._steps == 0 and held >= MANY_ROWS:
            longest = {"source": int(self._source_lengths[:held].max()), "target": target_tokens}
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
        self._held = max(self._held, target + 1)
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
                block.resize(self.capacities[length], self._held)


def _rounded(tokens: int) -> int:
    return -(-tokens // CAPACITY_STEP_TOKENS) * CAPACITY_STEP_TOKENS
