"""Opens the graphs of a bundle on the CPU: native ones or those with states."""

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
        BundleError: if the graphs need a GPU, or ONNX Runtime rejects one.
    """
    if bundle.manifest.variant == "cuda":
        raise BundleError(
            f"{bundle.folder}: variant: cuda, expected cpu or portable on a CPU: export with `dragoman export "
            "--variant cpu`, or serve on an NVIDIA GPU with --device cuda"
        )
    kind: type[HostSessions] = Sessions if bundle.manifest.cache is None else NativeSessions
    return kind.load(bundle, threads, aligned=aligned, profile_prefix=profile_prefix)
