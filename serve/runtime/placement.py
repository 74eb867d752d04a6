"""Decides where a bundle is computed and how large: device, engines, and slots that fit into device memory.

The decision is made before anything is loaded. It counts the memory that `serve/native/src/cuda`
allocates; `docs/gpu.md` has the formula. `open_sessions` opens the graphs on the CPU or on the first GPU.
"""

from dataclasses import dataclass
from math import prod
from typing import Literal, NamedTuple

import structlog

from dragoman.serve.bundle.bundle import WEIGHTS_FILE, Bundle, BundleError
from dragoman.serve.bundle.manifest import Manifest, StateSpec
from dragoman.serve.bundle.shortlist import max_candidates
from dragoman.serve.host.system import DeviceChoice
from dragoman.serve.runtime.device import ELEMENT_BYTES, ENCODER_ROWS, STATE_ELEMENTS, DeviceGraphs
from dragoman.serve.runtime.driver import Gpu, gpus, why_no_cuda
from dragoman.serve.runtime.native import NativeSessions
from dragoman.serve.runtime.sessions import load_sessions

DeviceKind = Literal["cpu", "cuda"]
FLOAT_BYTES = 4
# Encoder and decoder each hold their weights. Tied embeddings are in both, and once more transposed.
WEIGHT_COPIES = 2
# Encoder activations that live at the same time, each as large as its states; feed-forward layers take four.
ENCODER_ACTIVATIONS = 16
# Score matrices of a step: logits, logits in 16 bits before the cast, and log-probabilities.
MATRICES = 3
# Workspaces of cuBLAS and cuDNN, and CUDA graphs, take this much. It is not measured yet.
RESERVE_BYTES = 512 << 20


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The device memory of one engine."""

    slots: int
    fixed_bytes: int
    slot_bytes: int

    @property
    def total_bytes(self) -> int:
        """Memory of all slots and the fixed part."""
        return self.fixed_bytes + self.slots * self.slot_bytes


def plan_memory(bundle: Bundle, slots: int, budget_bytes: int) -> MemoryPlan:
    """Returns the memory of an engine with `slots` slots, or with as many as fit into the budget, possibly none."""
    manifest = bundle.manifest
    weights_bytes = WEIGHT_COPIES * (bundle.folder / WEIGHTS_FILE).stat().st_size
    fixed = weights_bytes + _encoder_bytes(manifest) + RESERVE_BYTES
    per_slot = _slot_bytes(manifest)
    fitting = max(0, (budget_bytes - fixed) // per_slot)
    return MemoryPlan(min(slots, fitting), fixed, per_slot)


def _encoder_bytes(manifest: Manifest) -> int:
    """Returns the memory of an encoder run: its results for every layer, and its activations."""
    sources = [_state_bytes(spec, manifest) for spec in manifest.states if spec.kind == "source"]
    return ENCODER_ROWS * (sum(sources) + ENCODER_ACTIVATIONS * max(sources, default=0))


def _slot_bytes(manifest: Manifest) -> int:
    states = sum(_state_bytes(spec, manifest) for spec in manifest.states)
    # Room for one state while the source states are resized.
    spare = max((_state_bytes(spec, manifest) for spec in manifest.states if spec.kind == "source"), default=0)
    scores = MATRICES * manifest.vocabulary_size * FLOAT_BYTES
    alignments = len(manifest.alignment_heads) * manifest.max_source_tokens * FLOAT_BYTES
    return states + spare + scores + alignments


def _state_bytes(spec: StateSpec, manifest: Manifest) -> int:
    lengths = {"source": manifest.max_source_tokens, "target": manifest.max_target_tokens}
    size = prod(lengths[item] if isinstance(item, str) else item for item in spec.shape)
    return size * ELEMENT_BYTES[STATE_ELEMENTS[manifest.precision]]


# Memory of a loaded model besides weights and slots: sessions, graphs, tokenizer.
HOST_BYTES = 8 << 20
# Tokenizer and vocabulary, per piece.
PIECE_BYTES = 500


def host_memory_bytes(bundle: Bundle, engines: int, slots: int) -> int:
    """Estimates the memory of a model, its mapped weights included; `slots` are those of an engine."""
    manifest = bundle.manifest
    fixed = (bundle.folder / WEIGHTS_FILE).stat().st_size + HOST_BYTES + PIECE_BYTES * manifest.vocabulary_size
    if manifest.variant == "cuda":
        return fixed
    cache = manifest.cache
    if cache is None:
        return fixed + engines * (_encoder_bytes(manifest) + slots * _slot_bytes(manifest))
    tensors = cache.tensors("source", manifest.max_source_tokens) | cache.tensors("target", manifest.max_target_tokens)
    sizes = {"int8": 1, "float": FLOAT_BYTES}
    slot_bytes = sum(prod(tensor.shape) * sizes[tensor.element] for tensor in tensors.values())
    if manifest.shortlist is not None:
        # A slot keeps a copy of the outputs of its candidates.
        outputs = (
            min(max_candidates(manifest.vocabulary_size, 1), manifest.vocabulary_size) * cache.heads * cache.head_size
        )
        slot_bytes += outputs * (1 if manifest.precision == "int8" else FLOAT_BYTES)
    return fixed + engines * slots * (slot_bytes + FLOAT_BYTES * manifest.vocabulary_size)


# Share of the free memory to use: allocators take larger pieces than requested.
USED_SHARE = 0.9
EXPORT_CUDA = "`dragoman export RUN --out FOLDER --variant cuda --precision fp16`"
EXPORT_CPU = "`dragoman export RUN --out FOLDER --variant cpu`"

log = structlog.get_logger("dragoman")


class DeviceError(BundleError):
    """The device cannot compute the bundle; the message names the option, its value and the expected one."""


class Placement(NamedTuple):
    """Where a model is computed, and how large.

    Engines, as configured if None, are distributed round-robin over the devices. `slots` are those of each, `plan` its
    device memory, None on the CPU.
    """

    kind: DeviceKind
    engines: int | None
    slots: int
    plan: MemoryPlan | None


def choose_device(choice: DeviceChoice, bundle: Bundle) -> DeviceKind:
    """Returns the device for a bundle's variant; raises DeviceError if another was chosen, or it does not work."""
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
    """Chooses the device, engines and slots of a model.

    Engines and slots per engine are as configured; without engines, one per GPU. `memory_bytes` limits the memory on
    each GPU; None: what is free. Raises DeviceError if the device does not fit the bundle, or has no room for one slot.
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
            f"{plan.slot_bytes} per slot, and {device_bytes} bytes of each GPU are usable"
        )
    if plan.slots < slots:
        log.warning("slots_reduced", wanted=slots, slots=plan.slots, bytes=device_bytes)
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


# The opened graphs of a bundle.
ModelSessions = NativeSessions | DeviceGraphs


def open_sessions(bundle: Bundle, choice: DeviceChoice, *, aligned: bool = False, threads: int = 1) -> ModelSessions:
    """Opens the graphs of a bundle on the CPU or on the first GPU.

    `aligned` steps also return alignments; `threads` are the intra-op threads on the CPU. Raises BundleError if the
    device does not fit the bundle, or ONNX Runtime rejects a graph.
    """
    if choose_device(choice, bundle) == "cuda":
        return DeviceGraphs(bundle, 1, aligned=aligned)
    return load_sessions(bundle, threads, aligned=aligned)
