"""The only module that imports onnxruntime: sessions, values and facts about the package."""

import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import structlog
from numpy.typing import NDArray

from dragoman.serve.bundle.bundle import BundleError
from dragoman.serve.native.library import library_path, why_no_library

# ONNX Runtime sends telemetry unless this is set before its import. A translation server must not send any.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

VERSION: str = onnxruntime.__version__
CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"
# ONNX Runtime fuses Add + LayerNormalization into an operator that is ten times slower on the CPU (1.31, measured).
SLOW_FUSIONS = ["SkipLayerNormFusion"]
# The session entry with the number of intra-op threads: native kernels cannot query it.
THREADS_ENTRY = "dragoman.threads"
# Linux's names of the x86 instructions that sum products of 8 bits in 32 bits; older ones saturate in 16 bits.
EXACT_INSTRUCTIONS = ("avx512_vnni", "avx_vnni")
PROCESSOR = Path("/proc/cpuinfo")
# All CPU sessions share one arena instead of one each, since no thread is in two sessions at a time.
onnxruntime.create_and_register_allocator(
    onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    ),
    onnxruntime.OrtArenaCfg({}),
)


def session_options(threads: int) -> Any:
    """Returns session options with this number of intra-op threads, and with the native operators if there are any."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Its exceptions have the messages, and the names in a graph may be anything.
    options.log_severity_level = 4
    # A spinning thread would take CPU time from other engines and from the event loop.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if not _has_exact_instructions():
        # ONNX Runtime then makes weights unsigned, and multiplies them in 16 bits. On Arm all its products are exact.
        options.add_session_config_entry("session.x64quantprecision", "1")
    path = library_path()
    if path is not None and not _why_rejected(path):
        options.add_session_config_entry(THREADS_ENTRY, str(threads))
        options.register_custom_ops_library(str(path))
    return options


def _has_exact_instructions() -> bool:
    """Returns whether ONNX Runtime multiplies integers of 8 bits exactly, and fastest, without a setting."""
    try:
        with PROCESSOR.open(encoding="utf-8") as lines:
            flags = next((line.split() for line in lines if line.startswith("flags")), [])
    except OSError:  # not Linux
        return False
    return any(name in flags for name in EXACT_INSTRUCTIONS)


def why_no_kernels() -> str:
    """Returns why sessions run the functions of a graph instead of native kernels; empty if they run kernels."""
    path = library_path()
    return why_no_library() if path is None else _why_rejected(path)


@cache
def _why_rejected(library: Path) -> str:
    """Returns why this version of ONNX Runtime cannot use the library; empty if it can. Logs the reason once."""
    try:
        onnxruntime.SessionOptions().register_custom_ops_library(str(library))
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base class
        structlog.get_logger("dragoman").warning("native_library_rejected", library=str(library), problem=str(error))
        return str(error)
    return ""


def shared_options(threads: int, weights: Mapping[str, Any]) -> Any:
    """Returns options of a CPU session that shares memory with the other sessions of the process.

    `weights` replace the initializers of the same names and must outlive the session.
    """
    options = session_options(threads)
    options.add_session_config_entry("session.use_env_allocators", "1")
    # Weights would leave holes in the arena when their session closes.
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    for name, value in weights.items():
        options.add_initializer(name, value)
    return options


def open_session(path: Path, options: Any, provider: str = CPU_PROVIDER) -> Any:
    """Returns a session of a graph; raises BundleError if ONNX Runtime rejects the graph. There is no fallback."""
    try:
        return onnxruntime.InferenceSession(
            path, options, providers=[provider], disabled_optimizers=SLOW_FUSIONS, enable_fallback=0
        )
    except Exception as error:  # ONNX Runtime's exceptions have no common base class
        raise BundleError(f"{path}: rejected by ONNX Runtime {VERSION}: {error}") from error


def value_of(array: NDArray[Any]) -> Any:
    """Returns an OrtValue that wraps an array."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def bind_array(bind: Callable[..., None], name: str, array: NDArray[Any]) -> None:
    """Binds an array in place, with `bind_input` or `bind_output` of a binding; the array must not move."""
    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def has_cuda() -> bool:
    """Returns whether the installed package was built for CUDA; the machine may still lack a GPU."""
    return CUDA_PROVIDER in onnxruntime.get_available_providers()


def cuda_version() -> str:
    """Returns the CUDA version that the package was built for, as in 13.0; empty if none."""
    return str(getattr(onnxruntime, "cuda_version", "") or "")


def cuda_libraries() -> tuple[Path, ...]:
    """Returns the package's CUDA libraries in load order; the last one depends on CUDA's own libraries."""
    folder = Path(onnxruntime.__file__).parent / "capi"
    return folder / "libonnxruntime_providers_shared.so", folder / "libonnxruntime_providers_cuda.so"


def load_cuda_libraries() -> None:
    """Loads the CUDA libraries that pip installed; prints the ones that it does not find."""
    onnxruntime.preload_dlls()
