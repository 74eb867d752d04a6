"""How much of a GPU's memory an engine takes, counted before it is taken: what is fixed, and what each slot costs.

The state is counted as `serve.runtime.cuda.kv_cache` allocates it; `docs/gpu.md` has the formula. Knows no device.
"""

from dataclasses import dataclass
from math import prod

from serve.bundle.bundle import WEIGHTS_FILE, Bundle
from serve.bundle.manifest import Manifest, StateSpec
from serve.runtime.cpu import rows_ahead
from serve.runtime.cuda.device import ELEMENT_BYTES, FLOAT
from serve.runtime.cuda.device_sessions import STATE_ELEMENTS
from serve.runtime.cuda.runtime import ENCODER_ROWS

FLOAT_BYTES = ELEMENT_BYTES[FLOAT]
# Encoder and decoder hold their own weights; embeddings that are tied are there in both, and transposed once more.
WEIGHT_COPIES = 2
# Activations of the encoder that live together, each as large as its states: feed-forward layers are four wide.
ENCODER_ACTIVATIONS = 16
# Scores that a step has beside the logits: in 16 bits before they are cast, and log-probabilities.
MATRICES = 3
# Workspaces of cuBLAS and cuDNN, and CUDA graphs. Not measured yet.
RESERVE_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What one engine takes of a device.

    Attributes:
        slots: rows that it may run.
        fixed_bytes: whatever the slots.
        slot_bytes: of each slot, its share of the rows ahead included.
    """

    slots: int
    fixed_bytes: int
    slot_bytes: int

    @property
    def total_bytes(self) -> int:
        """Everything."""
        return self.fixed_bytes + self.slots * self.slot_bytes


def plan_memory(bundle: Bundle, slots: int, budget_bytes: int) -> MemoryPlan:
    """Returns what an engine takes with so many slots, or as many as the budget holds; there may be none.

    Args:
        bundle: what is served.
        slots: rows that are wanted.
        budget_bytes: the most that the engine may take.
    """
    manifest = bundle.manifest
    weights_bytes = WEIGHT_COPIES * (bundle.folder / WEIGHTS_FILE).stat().st_size
    fixed = weights_bytes + _encoder_bytes(manifest) + RESERVE_BYTES
    per_slot = _slot_bytes(manifest, slots)
    fitting = max(0, (budget_bytes - fixed) // per_slot)
    return MemoryPlan(min(slots, fitting), fixed, per_slot)


def _encoder_bytes(manifest: Manifest) -> int:
    """Returns what a run of the encoder takes: its results for every layer, and its activations."""
    sources = [_state_bytes(spec, manifest) for spec in manifest.states if spec.kind == "source"]
    return ENCODER_ROWS * (sum(sources) + ENCODER_ACTIVATIONS * max(sources, default=0))


def _slot_bytes(manifest: Manifest, slots: int) -> int:
    states = sum(_state_bytes(spec, manifest) for spec in manifest.states)
    # One state's room to lay the source states out anew.
    spare = max((_state_bytes(spec, manifest) for spec in manifest.states if spec.kind == "source"), default=0)
    rows = slots + rows_ahead(slots)
    scores = MATRICES * manifest.vocabulary_size * FLOAT_BYTES
    alignments = len(manifest.alignment_heads) * manifest.max_source_tokens * FLOAT_BYTES
    return -(-rows * (states + spare) // slots) + scores + alignments


def _state_bytes(spec: StateSpec, manifest: Manifest) -> int:
    lengths = {"source": manifest.max_source_tokens, "target": manifest.max_target_tokens}
    size = prod(lengths[each] if isinstance(each, str) else each for each in spec.shape)
    return size * ELEMENT_BYTES[STATE_ELEMENTS[manifest.precision]]
