"""Runs a bundle's graphs on GPUs: what the native loop serves with, and a `Model` for verification.

The work is done in C++ (`serve/native/src/cuda`). Tests run the same code on ONNX Runtime's CPU provider.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.bundle.manifest import Manifest, Precision
from dragoman.serve.native.device import Choices, DeviceConfig, DeviceMemoryError, DeviceModel, StepRecord
from dragoman.serve.native.loop import LoopError, Tensors, TensorSpec, loop_library
from dragoman.serve.runtime.model import NO_ROWS
from dragoman.serve.runtime.native import Best, NativeScores
from dragoman.serve.runtime.onnx_runtime import why_no_kernels

# A graph without weights, which `dragoman.export.graphs.weightless` writes.
CHOOSE = Path(__file__).parent / "device_graphs" / "choose.onnx"
DRIVER = "libcuda.so.1"
# ONNX's numbers of the element types of states, and their sizes in bytes.
STATE_ELEMENTS: dict[Precision, int] = {"fp32": 1, "int8": 1, "fp16": 10}
ELEMENT_BYTES = {1: 4, 10: 2}
# The most sources encoded together. It bounds the memory in which they wait for their rows.
ENCODER_ROWS = 32
# Smaller source capacities are not worth a bucket.
MIN_SOURCE_CAPACITY = 32
# Steps with only shorter sources before the source capacity shrinks. Shrinking takes about as long as a step.
SHRINK_STEPS = 64


@dataclass(frozen=True, slots=True)
class DeviceGraphs:
    """The graphs of a bundle for a device.

    Attributes:
        gpus: number of GPUs over which the engines are distributed; 0: the CPU, for tests.
        aligned: whether steps return alignments; requires a bundle with alignment heads.
        memory_bytes: limit of each engine; None: none.
        captured: whether to capture a GPU's steps as CUDA graphs.
        ahead: whether a greedy step starts before the one before it is read.
        driver: the driver's library; None: the usual one, and without GPUs memory of the host.
    """

    bundle: Bundle
    gpus: int
    aligned: bool = False
    memory_bytes: int | None = None
    captured: bool = True
    ahead: bool = True
    driver: str | None = None

    def __post_init__(self) -> None:
        """Raises BundleError if a state is not float attention."""
        folder, manifest = self.bundle.folder, self.manifest
        if manifest.cache is not None:
            raise BundleError(f"{folder}: variant: {manifest.variant}, expected cuda on a device")
        for spec in manifest.states:
            if len(spec.shape) != 3 or not isinstance(spec.shape[1], str):  # noqa: PLR2004 - heads, length and size
                raise BundleError(
                    f"{folder}: states: {spec.name}: shape {spec.shape}: expected heads, a length and a size: "
                    "a device runs only Transformers"
                )

    @property
    def manifest(self) -> Manifest:
        """The manifest of the bundle."""
        return self.bundle.manifest

    def open(self, engines: int, slots: int) -> DeviceModel:
        """Opens the graphs and allocates the memory of engines, each with `slots` rows.

        Raises BundleError if the memory of a device is too small, the device fails, or ONNX Runtime rejects a graph.
        """
        if reason := why_no_kernels():
            raise BundleError(f"{self.bundle.folder}: expected the native library: {reason}")
        try:
            return DeviceModel(loop_library(), self._config(engines, slots))
        except DeviceMemoryError as error:
            problem = "out of device memory: use fewer, or --device-memory-bytes"
            raise BundleError(f"--slots: {slots}: {problem}: {error}") from error
        except LoopError as error:
            raise BundleError(f"{self.bundle.folder}: rejected by the device: {error}") from error

    def runtime(self, slots: int) -> "DeviceRuntime":
        """Returns a runtime with sessions and state of its own; raises BundleError as `open`."""
        return DeviceRuntime(self, slots)

    def _config(self, engines: int, slots: int) -> DeviceConfig:
        bundle, manifest = self.bundle, self.manifest
        element, driver = STATE_ELEMENTS[manifest.precision], self.driver or (DRIVER if self.gpus else None)
        limits = {"source": manifest.max_source_tokens, "target": manifest.max_target_tokens}
        states = {
            kind: Tensors.of(
                [
                    TensorSpec(spec.name, element, tuple(limits[n] if isinstance(n, str) else n for n in spec.shape))
                    for spec in manifest.states
                    if spec.kind == kind
                ]
            )
            for kind in limits
        }
        return DeviceConfig(
            encoder=str(bundle.encoder_path).encode(),
            decoder=str(bundle.aligned_decoder_path if self.aligned else bundle.decoder_path).encode(),
            choose=str(CHOOSE).encode(),
            driver=driver.encode() if driver else None,
            gpus=self.gpus,
            engines=engines,
            memory_bytes=self.memory_bytes or 0,
            captured=self.captured,  # the CPU ignores it
            ahead=self.ahead,
            slots=slots,
            vocabulary=manifest.vocabulary_size,
            begin_id=manifest.bos_id,
            pad_id=manifest.pad_id,
            max_source_tokens=manifest.max_source_tokens,
            max_target_tokens=manifest.max_target_tokens,
            alignment_heads=len(manifest.alignment_heads) if self.aligned else 0,
            element=element,
            least_capacity=MIN_SOURCE_CAPACITY,
            shrink_steps=SHRINK_STEPS,
            encoder_rows=min(slots, ENCODER_ROWS),
            source_states=states["source"],
            target_states=states["target"],
        )


class DeviceRuntime:
    """A `Model` that steps one engine from Python. Not thread-safe."""

    def __init__(self, graphs: DeviceGraphs, slots: int) -> None:
        """Opens the graphs and allocates the state of `slots` rows; raises BundleError as `DeviceGraphs.open`."""
        manifest = graphs.manifest
        self.slots = slots
        self.model = graphs.open(1, slots)
        self._vocabulary_size = manifest.vocabulary_size
        heads = len(manifest.alignment_heads) if graphs.aligned else 0
        # Attention weights of A alignment heads in the last aligned step, float32 [slots, A, S], valid for its rows.
        self.alignments = np.zeros((slots, heads, manifest.max_source_tokens), np.float32)
        self._record = StepRecord()

    def encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        """Encodes B sources; see `Model.encode`."""
        valid = np.arange(source_ids.shape[1]) < source_lengths[:, np.newaxis]
        counts = np.array([len(own) for own in rows], np.int32)
        self.model.encode(source_ids[valid], source_lengths, np.concatenate(rows).astype(np.int32), counts)

    def step(
        self,
        rows: NDArray[np.int64],
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        scored_rows: NDArray[np.int64] = NO_ROWS,
        best_count: int = 1,
        aligned: bool = False,
    ) -> NativeScores:
        """Computes one step; see `Model.step`."""
        scored = np.flatnonzero(np.isin(rows, scored_rows)).astype(np.int32)
        arrays = [token_ids, positions, rows.astype(np.int32), source_lengths, scored]
        kept = [np.ascontiguousarray(array) for array in arrays]  # must outlive the call
        count = min(best_count, self._vocabulary_size)
        record = self._record = StepRecord(
            *(array.ctypes.data for array in kept), len(rows), len(scored), count, aligned
        )
        self.model.step(record)
        if aligned and self.alignments.shape[1]:
            self.alignments[rows] = np.ctypeslib.as_array(record.alignments, (len(rows), *self.alignments.shape[1:]))
        logits = np.ctypeslib.as_array(record.logits, (len(scored), self._vocabulary_size)).copy()
        return NativeScores(rows, scored_rows, _best(record.choices, len(rows), count), logits, self._choose)

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies the first tokens of rows over others of the same source; no row is both source and target."""
        for branch in zip(sources, targets, positions, strict=True):
            self.model.branch(*branch)

    def _choose(self, logits: NDArray[np.float32], count: int) -> Best:
        """Returns the best tokens of M rows of changed logits, float32 [M, V], of the last step."""
        np.ctypeslib.as_array(self._record.logits, logits.shape)[:] = logits
        return _best(self.model.choose(len(logits), count), len(logits), count)


def _best(choices: Choices, rows: int, count: int) -> Best:
    """Returns a copy of the best tokens of rows."""
    matrices: list[NDArray[Any]] = [
        np.ctypeslib.as_array(values, (rows, count)).copy() for values in (choices.best_scores, choices.best_ids)
    ]
    return Best(np.ctypeslib.as_array(choices.log_sums, (rows,)).copy(), *matrices)
