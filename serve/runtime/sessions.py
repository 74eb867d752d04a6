"""Opens the graphs of a bundle on the CPU: native ones of a Transformer, or those with states of a recurrent model."""

from pathlib import Path

from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.runtime.cpu import Sessions
from dragoman.serve.runtime.host import HostSessions
from dragoman.serve.runtime.native import NativeSessions


def load_sessions(
    bundle: Bundle, threads: int, *, aligned: bool = False, profile_prefix: Path | None = None
) -> HostSessions:
    """Opens the graphs of a bundle on the CPU; all engines may share them.

    Args:
        threads: intra-op threads; 1 is best if several engines share the CPUs.
        aligned: whether steps return alignments; requires a bundle with alignment heads.
        profile_prefix: prefix of the file for ONNX Runtime's profile of the decoder, which `decoder.end_profiling()`
            completes and names; None: no profile.

    Raises:
        BundleError: if the graphs need a GPU or have KV caches as states, or ONNX Runtime rejects one.
    """
    if bundle.manifest.variant == "cuda":
        raise BundleError(
            f"{bundle.folder}: variant: cuda, expected cpu on a CPU: export with `dragoman export "
            "--variant cpu`, or serve on an NVIDIA GPU with --device cuda"
        )
    if bundle.manifest.cache is not None:
        return NativeSessions.load(bundle, threads, aligned=aligned, profile_prefix=profile_prefix)
    if aligned or any(spec.kind == "target" for spec in bundle.manifest.states):
        problem = "states: expected native graphs of a Transformer on a CPU: export the model again"
        raise BundleError(f"{bundle.folder}: {problem} with `dragoman export`")
    return Sessions.load(bundle, threads, profile_prefix=profile_prefix)
