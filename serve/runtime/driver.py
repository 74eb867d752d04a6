"""NVIDIA GPUs: their list from the driver, a check that ONNX Runtime can use them, and their metrics.

The driver's management library (NVML) needs neither CUDA nor a context on a device. ONNX Runtime only warns and falls
back to the CPU, therefore a session of a tiny graph proves CUDA works. Likely causes are checked first, in the order of
their repair. The check never lists kernels, which ends the process if a CUDA library is missing.
"""

import ctypes
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.runtime import onnx_runtime
from dragoman.serve.runtime.device import CHOOSE

VISIBLE = "CUDA_VISIBLE_DEVICES"


class GpuError(Exception):
    """There is no GPU, or NVML cannot be queried; the message names the cause."""


class Gpu(NamedTuple):
    """A GPU visible to CUDA, in CUDA's order; free memory is what no process has allocated."""

    name: str
    total_bytes: int
    free_bytes: int


def gpus() -> list[Gpu]:
    """Returns the GPUs that this process may use; raises GpuError if there is no driver."""
    with _nvml() as nvml:
        found = []
        for handle in _visible(nvml):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            found.append(Gpu(str(nvml.nvmlDeviceGetName(handle)), int(memory.total), int(memory.free)))
        return found


def driver_cuda_version() -> tuple[int, int]:
    """Returns the newest CUDA version of the driver, as in (13, 0); raises GpuError if there is no driver."""
    with _nvml() as nvml:
        version = int(nvml.nvmlSystemGetCudaDriverVersion_v2())  # 1000 * major + 10 * minor
        return version // 1000, version % 1000 // 10


@contextmanager
def _nvml() -> Iterator[Any]:
    try:
        import pynvml  # noqa: PLC0415 - part of the extra `cuda`
    except ImportError as error:
        raise GpuError("nvidia-ml-py is not installed: pip install '.[cuda]'") from error
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
    """Returns the handles of the GPUs that CUDA sees; the environment may select them by number or UUID."""
    chosen = os.environ.get(VISIBLE)
    if chosen is None:
        return [nvml.nvmlDeviceGetHandleByIndex(number) for number in range(nvml.nvmlDeviceGetCount())]
    names = [name.strip() for name in chosen.split(",") if name.strip()]
    return [
        nvml.nvmlDeviceGetHandleByIndex(int(name)) if name.isdecimal() else nvml.nvmlDeviceGetHandleByUUID(name)
        for name in names
    ]


EXTRA = "pip install '.[cuda]'"


def why_no_cuda() -> str | None:
    """Returns why ONNX Runtime cannot compute on a GPU; None if it can."""
    return (
        _why_no_package()
        or onnx_runtime.why_no_kernels()
        or _why_no_driver()
        or _why_no_libraries(onnx_runtime.cuda_libraries())
        or _why_no_session()
    )


def _why_no_package() -> str | None:
    if onnx_runtime.has_cuda():
        return None
    return f"onnxruntime {onnx_runtime.VERSION} is built for CPUs: uninstall it, then {EXTRA}"


def _why_no_driver() -> str | None:
    # Numbers GPUs as the driver does, instead of fastest first.
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
    built_for = onnx_runtime.cuda_version()
    try:
        if not gpus():
            hidden = f" ({VISIBLE} is set)" if VISIBLE in os.environ else ""
            return f"the NVIDIA driver has no GPU{hidden}"
        major, minor = driver_cuda_version()
    except GpuError as error:
        return str(error)
    if major < int(built_for.partition(".")[0] or 0):
        return (
            f"the NVIDIA driver runs CUDA {major}.{minor}, onnxruntime-gpu {onnx_runtime.VERSION} is built for CUDA "
            f"{built_for}: install a newer driver, or an onnxruntime-gpu for CUDA {major}"
        )
    return None


def _why_no_libraries(libraries: Iterable[Path]) -> str | None:
    """Loads the libraries that pip installed, then their dependents; the loader names a missing library."""
    with redirect_stdout(StringIO()):
        onnx_runtime.load_cuda_libraries()
    try:
        for library in libraries:
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return f"{error}: {EXTRA}, which brings the libraries of CUDA {onnx_runtime.cuda_version()} and cuDNN"
    return None


@cache  # opened once: another use of CUDA would spoil the capture of a graph
def _why_no_session() -> str | None:
    provider = onnx_runtime.CUDA_PROVIDER
    try:
        session = onnx_runtime.open_session(CHOOSE, onnx_runtime.session_options(threads=1), provider)
    except BundleError as error:
        # CUDA's own message stands within a C++ signature.
        failure = re.search(r"CUDA failure \d+: [^;]*", str(error))
        return " ".join((failure[0] if failure else str(error)).split())
    if provider not in session.get_providers():
        return "ONNX Runtime falls back to the CPU: see its warning on stderr"
    return None


class GpuCollector(Collector):
    """Gauges labeled with the GPU number; none while the driver does not respond."""

    def describe(self) -> list[Metric]:
        """Returns no metrics, so that registration does not query the driver."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields total and used memory of each GPU, of all processes."""
        total = GaugeMetricFamily("dragoman_gpu_memory_total_bytes", "Memory of each GPU.", labels=["gpu"])
        used = GaugeMetricFamily(
            "dragoman_gpu_memory_used_bytes", "Memory of each GPU that is taken, by any process.", labels=["gpu"]
        )
        try:
            found = gpus()
        except GpuError:
            return
        for number, gpu in enumerate(found):
            total.add_metric([str(number)], gpu.total_bytes)
            used.add_metric([str(number)], gpu.total_bytes - gpu.free_bytes)
        yield total
        yield used
