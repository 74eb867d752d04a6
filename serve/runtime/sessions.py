"""Opens the graphs of a bundle on the CPU: native ones of a Transformer, or those with states of a recurrent model."""

from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.runtime.cpu import Sessions
from dragoman.serve.runtime.host import HostSessions
from dragoman.serve.runtime.native import NativeSessions


def load_sessions(bundle: Bundle, threads: int, *, aligned: bool = False) -> HostSessions:
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
    if bundle.manifest.cache is not None:
        return NativeSessions.load(bundle, threads, aligned=aligned)
    if aligned or any(spec.kind == "target" for spec in bundle.manifest.states):
        problem = "states: expected native graphs of a Transformer on a CPU: export the model again"
        raise BundleError(f"{bundle.folder}: {problem} with `dragoman export`")
    return Sessions.load(bundle, threads)
