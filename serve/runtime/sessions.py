"""Opens the native graphs of a bundle on the CPU."""

from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.runtime.native import NativeSessions


def load_sessions(bundle: Bundle, threads: int, *, aligned: bool = False) -> NativeSessions:
    """Opens the graphs of a bundle on the CPU; all engines may share them.

    One intra-op thread is best if several engines share the CPUs. `aligned` steps also return alignments, which
    requires a bundle with alignment heads. Raises BundleError if the graphs need a GPU or have KV caches as states, or
    ONNX Runtime rejects one.
    """
    if bundle.manifest.variant == "cuda":
        raise BundleError(
            f"{bundle.folder}: variant: cuda, expected cpu on a CPU: export with `dragoman export "
            "--variant cpu`, or serve on an NVIDIA GPU with --device cuda"
        )
    if bundle.manifest.cache is None:
        problem = "states: expected native graphs of a Transformer on a CPU: export the model again"
        raise BundleError(f"{bundle.folder}: {problem} with `dragoman export`")
    return NativeSessions.load(bundle, threads, aligned=aligned)
