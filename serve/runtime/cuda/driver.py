"""The NVIDIA GPUs of this machine as their driver tells of them: how many, for which CUDA, with how much memory.

Asks the driver's management library (NVML), which needs neither CUDA nor a context on a device.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

VISIBLE = "CUDA_VISIBLE_DEVICES"


class GpuError(Exception):
    """There is no GPU, or no driver to ask; the message says why."""


class Gpu(NamedTuple):
    """A GPU that CUDA may use, in CUDA's order.

    Attributes:
        name: what its maker calls it.
        total_bytes: its memory.
        free_bytes: what of it nobody has taken.
    """

    name: str
    total_bytes: int
    free_bytes: int


def gpus() -> list[Gpu]:
    """Returns the GPUs that this process may use.

    Raises:
        GpuError: if there is no driver.
    """
    with _nvml() as nvml:
        found = []
        for handle in _visible(nvml):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            found.append(Gpu(str(nvml.nvmlDeviceGetName(handle)), int(memory.total), int(memory.free)))
        return found


def driver_cuda_version() -> tuple[int, int]:
    """Returns the newest version of CUDA that the driver runs, as in (13, 0).

    Raises:
        GpuError: if there is no driver.
    """
    with _nvml() as nvml:
        version = int(nvml.nvmlSystemGetCudaDriverVersion_v2())  # 1000 * major + 10 * minor
        return version // 1000, version % 1000 // 10


@contextmanager
def _nvml() -> Iterator[Any]:
    try:
        import pynvml  # noqa: PLC0415 - comes with the extra `cuda`
    except ImportError as error:
        raise GpuError("nvidia-ml-py is not installed: pip install 'dragoman[cuda]'") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise GpuError(f"no NVIDIA driver answers: {error}") from error
    try:
        yield pynvml
    except pynvml.NVMLError as error:
        raise GpuError(f"the NVIDIA driver fails: {error}") from error
    finally:
        pynvml.nvmlShutdown()


def _visible(nvml: Any) -> list[Any]:
    """Returns the handles of the GPUs that CUDA sees, which the environment may choose by number or by UUID."""
    chosen = os.environ.get(VISIBLE)
    if chosen is None:
        return [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    return [
        nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(name)
        for name in names
    ]
