"""The sessions of a bundle on a device: the same graphs and a runtime of the same form as on the CPU.

Each engine has its own, because a CUDA graph that a session captured belongs to the thread and the memory that it was
captured with. Knows nothing of how a device is chosen: that is `serve.runtime.placement`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

from serve.bundle.bundle import Bundle, BundleError
from serve.bundle.manifest import Manifest, Precision
from serve.runtime.cuda.device import FLOAT, FLOAT16, Device
from serve.runtime.cuda.device_tools import DeviceTools
from serve.runtime.cuda.runtime import DeviceRuntime
from serve.runtime.onnx_runtime import (
    CPU_PROVIDER,
    CUDA_PROVIDER,
    SLOW_FUSIONS,
    Provider,
    open_session,
    session_options,
)

# What states are made of, as ONNX numbers types.
STATE_ELEMENTS: dict[Precision, int] = {"fp32": FLOAT, "int8": FLOAT, "int8-static": FLOAT, "fp16": FLOAT16}
# Bits of ONNX Runtime's `sdpa_kernel`: flash attention and memory-efficient attention, and no other. Left to itself it
# would choose by shape, so that a row's bits could depend on how many are beside it.
PINNED_ATTENTION = 1 | 2


@dataclass(frozen=True, slots=True)
class DeviceSessions:
    """The sessions of one engine.

    Attributes:
        decoder: of the plain decoder, or of the one that also gives alignments.
        captured: whether runs of the decoder are captured as CUDA graphs.
        graph_ids: numbers for these, from 1, as 0 is ONNX Runtime's own. A number stands for addresses, so that no two
            runtimes may share one.
    """

    manifest: Manifest
    tools: DeviceTools
    encoder: Any
    decoder: Any
    aligned: bool
    captured: bool
    graph_ids: Iterator[int] = field(default_factory=lambda: count(1))

    @classmethod
    def load(
        cls,
        bundle: Bundle,
        device: Device,
        *,
        aligned: bool = False,
        memory_bytes: int | None = None,
        captured: bool = True,
    ) -> Self:
        """Opens the graphs of a bundle.

        Args:
            bundle: a checked bundle, of the variant that the device runs.
            device: where they run.
            aligned: whether steps are to give alignments, which the bundle must have been exported for.
            memory_bytes: the most that the arena of any one session may take; None: all of the device.
            captured: whether a GPU's steps are captured as CUDA graphs; without, each launches its kernels again.

        Raises:
            BundleError: if a state is not one of attention in floats, or ONNX Runtime refuses a graph.
        """
        _check_states(bundle)
        captured = captured and device.kind == "cuda"
        plain, capturing = (_provider(device, memory_bytes, captured=each) for each in (False, captured))
        options = session_options(threads=1)
        skipped = SLOW_FUSIONS if device.kind == "cpu" else ()
        return cls(
            bundle.manifest,
            DeviceTools.load(device, plain),
            encoder=open_session(bundle.encoder_path, options, [plain], skipped=skipped),
            decoder=open_session(
                bundle.aligned_decoder_path if aligned else bundle.decoder_path, options, [capturing], skipped=skipped
            ),
            aligned=aligned,
            captured=captured,
        )

    @property
    def element(self) -> int:
        """What the states are made of."""
        return STATE_ELEMENTS[self.manifest.precision]

    def runtime(self, slots: int, ahead: int = 0) -> DeviceRuntime:
        """Returns a runtime with a state of its own."""
        return DeviceRuntime(self, slots, ahead)


def _check_states(bundle: Bundle) -> None:
    for spec in bundle.manifest.states:
        if len(spec.shape) != 3 or not isinstance(spec.shape[1], str):  # noqa: PLR2004 - heads, length and size
            raise BundleError(
                f"{bundle.folder}: states: {spec.name}: shape {spec.shape}: expected heads, a length and a size: "
                "only Transformers run on a device"
            )
        if spec.element != "float":
            raise BundleError(
                f"{bundle.folder}: states: {spec.name}: element {spec.element}: expected float on a device: export in "
                "another precision, or with --variant portable"
            )


def _provider(device: Device, memory_bytes: int | None, *, captured: bool) -> Provider:
    if device.kind == "cpu":
        return CPU_PROVIDER
    options = {
        "device_id": str(device.number),
        # The state is a few large pieces: powers of two would take up to twice as much.
        "arena_extend_strategy": "kSameAsRequested",
        "enable_cuda_graph": str(int(captured)),
        "sdpa_kernel": str(PINNED_ATTENTION),
        "use_tf32": "0",
    }
    if memory_bytes is not None:
        options["gpu_mem_limit"] = str(memory_bytes)
    return CUDA_PROVIDER, options
