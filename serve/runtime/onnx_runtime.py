"""The only module that imports onnxruntime: sessions, values on a device, and what the package says of itself.

Knows neither bundles' contents nor states. Called by the modules of `serve.engine` that compute.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from serve.bundle.bundle import BundleError

# ONNX Runtime reports its use to its makers, unless told otherwise before it is loaded. A server that people trust with
# their texts calls nobody.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import onnxruntime

VERSION: str = onnxruntime.__version__
CPU_PROVIDER, CUDA_PROVIDER = "CPUExecutionProvider", "CUDAExecutionProvider"
# The provider's name, or a pair of it and its options.
Provider = str | tuple[str, dict[str, str]]
# ONNX Runtime fuses Add + LayerNormalization into an operator that is ten times slower on the CPU (1.31, measured).
SLOW_FUSIONS = ["SkipLayerNormFusion"]
# What sessions compute on the CPU lies in one arena, not one for each: no thread is in two of them at a time.
onnxruntime.create_and_register_allocator(
    onnxruntime.OrtMemoryInfo(
        "Cpu", onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, onnxruntime.OrtMemType.DEFAULT
    ),
    onnxruntime.OrtArenaCfg({}),
)


def session_options(threads: int) -> Any:
    """Returns options of a session whose operators may use so many threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # A spinning thread would take the CPU away from the other engines and from the event loop.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def shared_options(threads: int, weights: Mapping[str, Any]) -> Any:
    """Returns options of a session on the CPU that shares memory with the others of the process.

    Args:
        threads: that its operators may use.
        weights: OrtValues, which must outlive the session, to be read in place of the graph's initializers of the same
            names.
    """
    options = session_options(threads)
    options.add_session_config_entry("session.use_env_allocators", "1")
    # Weights would leave holes in the arena when their session is closed.
    options.add_session_config_entry("session.use_device_allocator_for_initializers", "1")
    for name, value in weights.items():
        options.add_initializer(name, value)
    return options


def open_session(
    path: Path, options: Any, providers: Sequence[Provider] = (CPU_PROVIDER,), skipped: Sequence[str] = SLOW_FUSIONS
) -> Any:
    """Returns a session of a graph.

    Args:
        path: the graph.
        options: of the session.
        providers: what computes it, the preferred first; where one fails, no other is tried.
        skipped: optimizations to leave out.

    Raises:
        BundleError: if ONNX Runtime refuses the graph.
    """
    try:
        return onnxruntime.InferenceSession(
            path, options, providers=list(providers), disabled_optimizers=list(skipped), enable_fallback=0
        )
    except Exception as error:  # ONNX Runtime's exceptions share no base class of their own
        raise BundleError(f"{path}: ONNX Runtime {VERSION} refuses it: {error}") from error


def value_on(kind: str, number: int, array: NDArray[Any]) -> Any:
    """Returns an OrtValue with a copy of an array in the memory of a device; on the CPU it is the array itself."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(array, kind, number)


def run_options(graph_id: int) -> Any:
    """Returns options of runs that are captured as a CUDA graph the first time, and replayed afterwards.

    Args:
        graph_id: of the graph, positive; all runs with it have the same shapes and addresses.
    """
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", str(graph_id))
    return options


def has_cuda() -> bool:
    """Returns whether the installed package was built for CUDA, which says nothing of this machine."""
    return CUDA_PROVIDER in onnxruntime.get_available_providers()


def cuda_version() -> str:
    """Returns the version of CUDA that the package was built for, as in 13.0; empty: for none."""
    return str(getattr(onnxruntime, "cuda_version", "") or "")


def cuda_libraries() -> tuple[Path, ...]:
    """Returns the files of the package to be loaded for CUDA, in this order; the last needs the libraries of CUDA."""
    folder = Path(onnxruntime.__file__).parent / "capi"
    return folder / "libonnxruntime_providers_shared.so", folder / "libonnxruntime_providers_cuda.so"


def load_cuda_libraries() -> None:
    """Loads the libraries of CUDA that pip installed beside the package; prints what it does not find."""
    onnxruntime.preload_dlls()
