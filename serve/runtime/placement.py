"""Where a bundle is computed: on the CPU or on the GPUs, as the operator says and its graphs allow.

Settles, before anything is loaded, what the settings leave open: the device, an engine for each, and as many slots as
its memory holds. Called when a bundle is opened, and by whoever computes without a service.
"""

from typing import NamedTuple

import structlog

from serve.bundle.bundle import Bundle, BundleError
from serve.runtime.cuda.cuda import why_no_cuda
from serve.runtime.cuda.device import DeviceKind
from serve.runtime.cuda.driver import Gpu, gpus
from serve.runtime.device_choice import DeviceChoice
from serve.runtime.device_memory import MemoryPlan, plan_memory

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
