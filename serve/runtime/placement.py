"""Where a bundle is computed: on the CPU or on the GPUs, as the operator says and its graphs allow.

Settles, before anything is loaded, what the settings leave open: the device, an engine for each, and as many slots as
its memory holds. Called when a bundle is opened, and by whoever computes without a service.

How much of a GPU's memory an engine takes, counted before it is taken: what is fixed, and what each slot costs.

The state is counted as `serve.runtime.cuda.kv_cache` allocates it; `docs/gpu.md` has the formula. Knows no device.

A bundle's graphs, opened where they are computed: what verification and benchmarks need of them, CPU or GPU.

`Sessions` and `DeviceSessions` are both of this form. Knows neither settings nor services.
"""

from dataclasses import dataclass
from math import prod
from typing import NamedTuple, Protocol

import numpy as np
import structlog
from numpy.typing import NDArray

from serve.bundle.bundle import WEIGHTS_FILE, Bundle, BundleError
from serve.bundle.manifest import Manifest, StateSpec
from serve.runtime.cpu import Sessions, prefetched_rows
from serve.runtime.cuda.device import ELEMENT_BYTES, FLOAT, Device, DeviceKind
from serve.runtime.cuda.driver import Gpu, gpus, why_no_cuda
from serve.runtime.cuda.runtime import ENCODER_ROWS, STATE_ELEMENTS, DeviceSessions
from serve.runtime.device_choice import DeviceChoice
from serve.runtime.model import Model

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
    rows = slots + prefetched_rows(slots)
    scores = MATRICES * manifest.vocabulary_size * FLOAT_BYTES
    alignments = len(manifest.alignment_heads) * manifest.max_source_tokens * FLOAT_BYTES
    return -(-rows * (states + spare) // slots) + scores + alignments


def _state_bytes(spec: StateSpec, manifest: Manifest) -> int:
    lengths = {"source": manifest.max_source_tokens, "target": manifest.max_target_tokens}
    size = prod(lengths[each] if isinstance(each, str) else each for each in spec.shape)
    return size * ELEMENT_BYTES[STATE_ELEMENTS[manifest.precision]]


# Of the memory that is free: allocators take it in larger pieces than are asked for.
USED_SHARE = 0.9
EXPORT_CUDA = "`dragoman export RUN --out FOLDER --variant cuda --precision fp16`"
EXPORT_CPU = "`dragoman export RUN --out FOLDER --variant cpu`"

log = structlog.get_logger("dragoman")


class DeviceError(BundleError):
    """A bundle cannot be computed where it is to be; the message names the option, its value and what was expected."""


class Placement(NamedTuple):
    """Where a model is computed, and how large.

    Attributes:
        kind: of the device.
        engines: how many, taking turns among the devices; None: as the settings say.
        slots: of each engine.
        plan: of each engine's memory on a device; None on the CPU.
    """

    kind: DeviceKind
    engines: int | None
    slots: int
    plan: MemoryPlan | None


def choose_device(choice: DeviceChoice, bundle: Bundle) -> DeviceKind:
    """Returns the device that a bundle is for, if it is the wanted one and works.

    Raises:
        DeviceError: if it does not.
    """
    variant = bundle.manifest.variant
    if choice == "cuda" and variant != "cuda":
        raise DeviceError(
            f"--device: cuda: expected cpu with {bundle.folder}, whose variant is {variant}: export it for a GPU with "
            f"{EXPORT_CUDA}"
        )
    if variant != "cuda":
        return "cpu"
    if choice == "cpu":
        raise DeviceError(
            f"--device: cpu: expected cuda with {bundle.folder}, whose variant is cuda: export it for a CPU with "
            f"{EXPORT_CPU}"
        )
    problem = why_no_cuda()
    if problem is not None:
        raise DeviceError(f"--device: {choice}: expected a GPU for {bundle.folder}, whose variant is cuda: {problem}")
    return "cuda"


def place(
    choice: DeviceChoice, bundle: Bundle, *, engines: int | None, slots: int, memory_bytes: int | None
) -> Placement:
    """Settles where and how large a model is computed.

    Args:
        choice: of the operator.
        bundle: what is computed.
        engines: how many the operator wants; None: on GPUs one for each.
        slots: how many of each engine the operator wants.
        memory_bytes: the most that the model may take of each GPU; None: what is free.

    Raises:
        DeviceError: if it cannot be computed there, or not even one slot has room.
    """
    kind = choose_device(choice, bundle)
    if kind == "cpu":
        return Placement(kind, engines, slots, None)
    return _place_on_gpus(bundle, gpus(), engines=engines, slots=slots, memory_bytes=memory_bytes)


def _place_on_gpus(
    bundle: Bundle, found: list[Gpu], *, engines: int | None, slots: int, memory_bytes: int | None
) -> Placement:
    count = engines or len(found)
    used = found[:count]
    free_bytes = int(USED_SHARE * min(gpu.free_bytes for gpu in used))
    device_bytes = free_bytes if memory_bytes is None else min(free_bytes, memory_bytes)
    plan = plan_memory(bundle, slots, device_bytes // -(-count // len(found)))
    if not plan.slots:
        raise DeviceError(
            f"--device: cuda: expected memory for one slot of {bundle.folder}: it takes {plan.fixed_bytes} bytes and "
            f"{plan.slot_bytes} for each slot, and {device_bytes} bytes of each GPU may be used"
        )
    if plan.slots < slots:
        log.warning("fewer slots: device memory holds no more", wanted=slots, slots=plan.slots, bytes=device_bytes)
    log.info(
        "device",
        bundle=str(bundle.folder),
        device="cuda",
        gpus=[gpu.name for gpu in used],
        engines=count,
        slots=plan.slots,
        planned_bytes=plan.total_bytes,
        usable_bytes=device_bytes,
    )
    return Placement("cuda", count, plan.slots, plan)


class DirectModel(Model, Protocol):
    """An engine's model whose logits can be had as they are."""

    def decode_step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
    ) -> NDArray[np.float32]:
        """Computes a step as `step` does; returns all logits, float32 [R, V], valid until the next call."""


class ModelSessions(Protocol):
    """The opened graphs of a bundle."""

    @property
    def manifest(self) -> Manifest:
        """Of the bundle."""

    def runtime(self, slots: int, prefetched: int = 0) -> DirectModel:
        """Returns a model with a state of its own.

        Args:
            slots: the most rows of a step.
            prefetched: rows behind those, which have a state but take part in no step.
        """


def open_sessions(bundle: Bundle, choice: DeviceChoice, *, aligned: bool = False) -> ModelSessions:
    """Opens the graphs of a bundle on the CPU, or on the first GPU.

    Args:
        bundle: a checked bundle.
        choice: where.
        aligned: whether steps are to give alignments, which the bundle must have been exported for.

    Raises:
        BundleError: if they cannot be computed there, or ONNX Runtime refuses one.
    """
    if choose_device(choice, bundle) == "cuda":
        return DeviceSessions.load(bundle, Device("cuda"), aligned=aligned)
    return Sessions.load(bundle, threads=1, aligned=aligned)
