"""What the decoder remembers of every slot, in slot-major arrays that ONNX Runtime reads and writes.

A bundle lists its state tensors (`export.bundle.StateSpec`): keys and values of attention, or the state of a recurrent
network. Each is one array [slots, *shape], with the model's limit in place of a named length. A step binds the first R
slots: because slots are the outermost axis, that is a view and copies nothing. This module knows neither sequences nor
ONNX Runtime.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from export.manifest import StateSpec

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class _Tensor:
    """One state tensor of all slots, float32 [slots, *shape].

    Attributes:
        spec: its name, shape and kind.
        value: what the decoder reads; of a target state also what it writes, in place.
        replacement: of a recurrent state what the decoder writes, for a graph may read the old value after it has
            written the new one.
    """

    spec: StateSpec
    value: Array
    replacement: Array | None

    def place(self, slots: int | NDArray[np.int64], length: int) -> tuple[int | slice | NDArray[np.int64], ...]:
        """Returns the index of some slots up to a length, which a recurrent state has not."""
        return (slots, *(slice(length) if isinstance(size, str) else slice(None) for size in self.spec.shape))


class DecoderState:
    """The state tensors of one engine.

    Attributes:
        slots: the most rows.
        inputs: by the name of the decoder's input, the array to bind to it, float32 [slots, *shape].
        outputs: by the name of the decoder's output, the array to bind to it, float32 [slots, *shape].
    """

    def __init__(
        self, specs: Iterable[StateSpec], *, slots: int, max_source_tokens: int, max_target_tokens: int
    ) -> None:
        self.slots = slots
        lengths = {"source": max_source_tokens, "target": max_target_tokens}
        self._tensors = [_allocate(spec, slots, lengths) for spec in specs]
        self._encoded = [tensor for tensor in self._tensors if tensor.spec.kind != "target"]
        self._decoded = [tensor for tensor in self._tensors if tensor.spec.kind != "source"]
        self._replaced = [
            (tensor.value, tensor.replacement) for tensor in self._tensors if tensor.replacement is not None
        ]
        self.inputs = {tensor.spec.decoder_input: tensor.value for tensor in self._tensors}
        self.outputs = {
            tensor.spec.decoder_output: tensor.value if tensor.replacement is None else tensor.replacement
            for tensor in self._tensors
            if tensor.spec.decoder_output is not None
        }

    def write(self, slots: NDArray[np.int64], encoded: Sequence[Array]) -> None:
        """Keeps what the encoder computed for B sequences.

        Args:
            slots: the slot of each sequence, int64 [B].
            encoded: the source and recurrent states in the bundle's order, each [B, *shape]; the source length is at
                most the limit.
        """
        for tensor, new in zip(self._encoded, encoded, strict=True):
            length = new.shape[1 + tensor.spec.shape.index("source")] if tensor.spec.kind == "source" else 0
            tensor.value[tensor.place(slots, length)] = new

    def advance(self, rows: int) -> None:
        """Makes what a step of the first `rows` slots wrote the state that the next step reads."""
        for value, replacement in self._replaced:
            value[:rows] = replacement[:rows]

    def copy(self, source: int, target: int, *, source_length: int, target_length: int) -> None:
        """Copies the valid part of one slot over that of another.

        Args:
            source: the slot to copy.
            target: the slot to overwrite.
            source_length: valid positions of source states.
            target_length: valid positions of target states.
        """
        for tensor in self._tensors:
            length = source_length if tensor.spec.kind == "source" else target_length
            tensor.value[tensor.place(target, length)] = tensor.value[tensor.place(source, length)]

    def branch(self, sources: Sequence[int], targets: Sequence[int], target_lengths: Sequence[int]) -> None:
        """Copies what the decoder has written itself: slot by slot of the same sources, none of them a target too.

        Args:
            sources: the slots to copy.
            targets: the slots to overwrite.
            target_lengths: valid positions of target states in each.
        """
        for tensor in self._decoded:
            for source, target, length in zip(sources, targets, target_lengths, strict=True):
                tensor.value[tensor.place(target, length)] = tensor.value[tensor.place(source, length)]


def _allocate(spec: StateSpec, slots: int, lengths: Mapping[str, int]) -> _Tensor:
    shape = (slots, *(lengths[size] if isinstance(size, str) else size for size in spec.shape))
    # Zeros, not garbage: a NaN behind the valid length could leak through a product with zero.
    value = np.zeros(shape, np.float32)
    return _Tensor(spec, value, np.zeros(shape, np.float32) if spec.kind == "recurrent" else None)
