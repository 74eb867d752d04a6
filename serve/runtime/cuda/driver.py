"""The NVIDIA GPUs of this machine as their driver tells of them: how many, for which CUDA, with how much memory.

Asks the driver's management library (NVML), which needs neither CUDA nor a context on a device.

Whether ONNX Runtime can compute on a GPU here, and if not, why: in one line, before anything is loaded.

ONNX Runtime itself only warns and goes on with the CPU. The proof is a session of a tiny graph; what could be wrong is
asked first, in the order in which people can put it right. It never lists kernels, which ends the process where a
library of CUDA is missing.

The memory of the GPUs as metrics: asked of the driver whenever somebody reads them.

Registered by `serve.service` where a model is computed on GPUs.
"""

import ctypes
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.bundle.bundle import BundleError
from serve.runtime import onnx_runtime
from serve.runtime.cuda.device import FOLDER

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


EXTRA = "pip install 'dragoman[cuda]'"
PROBE = FOLDER / "zeros.onnx"


def why_no_cuda() -> str | None:
    """Returns what keeps ONNX Runtime from computing on a GPU; None: nothing does."""
    return (
        _why_no_package() or _why_no_driver() or _why_no_libraries(onnx_runtime.cuda_libraries()) or _why_no_session()
    )


def _why_no_package() -> str | None:
    if onnx_runtime.has_cuda():
        return None
    return f"onnxruntime {onnx_runtime.VERSION} is built for CPUs: uninstall it, then {EXTRA}"


def _why_no_driver() -> str | None:
    # As the driver numbers them, and not the fastest first.
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
    """Loads the libraries that pip installed, then those that need them; the loader says which one is missing."""
    with redirect_stdout(StringIO()):
        onnx_runtime.load_cuda_libraries()
    try:
        for library in libraries:
            ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        return f"{error}: {EXTRA}, which brings the libraries of CUDA {onnx_runtime.cuda_version()} and cuDNN"
    return None


def _why_no_session() -> str | None:
    provider = onnx_runtime.CUDA_PROVIDER
    try:
        session = onnx_runtime.open_session(PROBE, onnx_runtime.session_options(threads=1), [provider])
    except BundleError as error:
        # What CUDA says stands in the middle of a C++ signature.
        failure = re.search(r"CUDA failure \d+: [^;]*", str(error))
        return " ".join((failure[0] if failure else str(error)).split())
    if provider not in session.get_providers():
        return "ONNX Runtime falls back to the CPU, and says why on stderr"
    return None


class GpuCollector(Collector):
    """Gauges with a label for the number of the GPU; none while the driver does not answer."""

    def describe(self) -> list[Metric]:
        """Names nothing, so that registering asks nobody."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields the memory of each GPU and what of it is taken, by whomever."""
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
