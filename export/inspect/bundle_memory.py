"""The memory that serving a bundle takes: weights once, decoder state and logits for every slot of every engine.

The state is counted as `serve.runtime.kv_cache` allocates it. Knows no graphs.
"""

from dataclasses import dataclass
from math import prod

import numpy as np

from serve.bundle.manifest import Manifest, Precision, StateSpec

# Logits are 32-bit floats, and so are states, whatever the products are computed in; except in fp16, and where a state
# is made of integers.
FLOAT_BYTES = 4
STATE_BYTES: dict[Precision, int] = {"fp32": 4, "int8": 4, "int8-static": 4, "fp16": 2}


@dataclass(frozen=True, slots=True)
class StateMemory:
    """One state tensor of a slot.

    Attributes:
        dtype: of its values.
        shape: of one slot, with the model's limits in place of the lengths.
        slot_bytes: what a slot takes.
        step_bytes: what one decoder step writes of a row; 0 if the encoder writes it once.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    slot_bytes: int
    step_bytes: int


@dataclass(frozen=True, slots=True)
class EngineMemory:
    """What each engine holds; the weights are shared by all of them.

    Attributes:
        slots: rows of the engine.
        states: of one slot.
        slot_bytes: decoder state of one slot.
        state_bytes: decoder state of all slots.
        logits_bytes: the buffer for the logits of a step.
    """

    slots: int
    states: tuple[StateMemory, ...]
    slot_bytes: int
    state_bytes: int
    logits_bytes: int


def measure_engine(manifest: Manifest, slots: int) -> EngineMemory:
    """Returns what an engine with so many slots takes."""
    states = tuple(_measure_state(spec, manifest) for spec in manifest.states)
    slot_bytes = sum(state.slot_bytes for state in states)
    logits_bytes = slots * manifest.vocabulary_size * FLOAT_BYTES
    return EngineMemory(slots, states, slot_bytes, slots * slot_bytes, logits_bytes)


def _measure_state(spec: StateSpec, manifest: Manifest) -> StateMemory:
    limits = {"source": manifest.max_source_tokens, "target": manifest.max_target_tokens}
    shape = tuple(limits[size] if isinstance(size, str) else size for size in spec.shape)
    dtype = np.dtype("int8" if spec.element == "int8" else f"f{STATE_BYTES[manifest.precision]}")
    value_bytes = prod(shape) * dtype.itemsize
    if spec.kind == "source":
        return StateMemory(spec.name, spec.kind, dtype.name, shape, value_bytes, 0)
    if spec.kind == "target":
        return StateMemory(spec.name, spec.kind, dtype.name, shape, value_bytes, value_bytes // limits["target"])
    # A step reads one value and writes another.
    return StateMemory(spec.name, spec.kind, dtype.name, shape, 2 * value_bytes, value_bytes)
