"""Whether ONNX Runtime can compute on a GPU here, and if not, why: in one line, before anything is loaded.

ONNX Runtime itself only warns and goes on with the CPU. The proof is a session of a tiny graph; what could be wrong is
asked first, in the order in which people can put it right. It never lists kernels, which ends the process where a
library of CUDA is missing.
"""

import ctypes
import os
import re
from collections.abc import Iterable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

from serve.bundle.bundle import BundleError
from serve.runtime import onnx_runtime
from serve.runtime.cuda.device_tools import FOLDER
from serve.runtime.cuda.driver import VISIBLE, GpuError, driver_cuda_version, gpus

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
