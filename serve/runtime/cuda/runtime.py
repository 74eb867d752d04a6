"""Runs a bundle's graphs on a device: each engine has its own sessions, and state and logits stay in device memory.

Steps run for a bucket of rows: every shape and address occurred before, and on a GPU a CUDA graph was captured for it.
Rows of the bucket without a hypothesis compute at position 0 of a one-token source. The next owner of such a row writes
that position first.

Engines share no session, because a captured CUDA graph belongs to its thread and its memory. Only a few numbers per row
reach the host; whole logits do so only for rows with constraints or sampling. Tests run this code on the CPU provider.

Shapes: R running rows, P rows of their bucket, M some rows, C source capacity, V vocabulary, A alignment heads.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.bundle.manifest import ALIGNMENTS, DECODER_INPUTS, ENCODER_INPUTS, LOGITS, Manifest, Precision
from dragoman.serve.runtime import onnx_runtime
from dragoman.serve.runtime.cuda.device import CUDA_GRAPH_LOCK, FLOAT, FLOAT16, Device, DeviceTools, Memory, View
from dragoman.serve.runtime.cuda.kv_cache import DeviceState
from dragoman.serve.runtime.model import NO_ROWS


class ShapeBuckets:
    """The few sizes that a device computes with, ascending: `least` times powers of two, and `most`."""

    def __init__(self, most: int, least: int = 1) -> None:
        """Computes the sizes; if `most` is smaller than `least`, it is the only size."""
        sizes = []
        size = least
        while size < most:
            sizes.append(size)
            size *= 2
        self.sizes = (*sizes, most)

    def of(self, size: int) -> int:
        """Returns the smallest bucket that holds a size of at most `most`."""
        return self.sizes[bisect_left(self.sizes, size)]


class Chosen(NamedTuple):
    """The best token of each row, int64 [P], and its log-probability, float32 [P]."""

    token_ids: NDArray[np.int64]
    scores: NDArray[np.float32]


class DeviceScores:
    """`dragoman.serve.runtime.model.Scores` of one step on a device."""

    def __init__(self, tools: DeviceTools, logits: View, log_probabilities: View) -> None:
        """Stores the tensors, float [P, V]; the second one is a buffer. Computes nothing yet."""
        self._tools = tools
        self._logits = logits
        self._log_probabilities = log_probabilities
        self._known: Chosen | None = None

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Copies the logits of some rows to the host."""
        return self._tools.fetch(self._logits, rows)

    def store(self, rows: NDArray[np.int64], logits: NDArray[np.float32]) -> None:
        """Copies logits to the device."""
        self._tools.copy(logits, self._logits, np.arange(len(rows)), rows)
        self._known = None

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns log-probabilities of tokens. The device computes one for every row, so that shapes do not vary."""
        wanted = self._chosen.token_ids.copy()
        wanted[rows] = token_ids
        return self._tools.scores_of(self._log_probabilities, wanted)[rows]

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best tokens. The device computes them for every row, so that shapes do not vary."""
        chosen = self._chosen
        if count == 1:
            return chosen.scores[rows, np.newaxis], chosen.token_ids[rows, np.newaxis]
        scores, token_ids = self._tools.best(self._log_probabilities, min(count, self._logits.shape[1]))
        return scores[rows], token_ids[rows]

    @property
    def _chosen(self) -> Chosen:
        """The best tokens; their computation fills the log-probabilities."""
        if self._known is None:
            last_id = np.array([[self._logits.shape[1] - 1]])
            self._known = Chosen(*self._tools.choose_tokens(self._logits, last_id, self._log_probabilities))
        return self._known


# The most sources encoded together. It bounds the memory in which they wait for their rows.
ENCODER_ROWS = 32
NO_POSITIONS = np.zeros(0, np.int32)
# Smaller source capacities are not worth a bucket.
MIN_SOURCE_CAPACITY = 32
# Steps with only shorter sources before the source capacity shrinks. Shrinking takes about as long as a step.
SHRINK_STEPS = 64


class _StepInputs(NamedTuple):
    """The per-step inputs of one bucket, at fixed addresses, which CUDA graphs require."""

    memories: tuple[Memory, ...]
    views: dict[str, View]

    def write(self, *arrays: NDArray[Any]) -> None:
        """Overwrites the inputs with arrays of the bucket's size."""
        for memory, array in zip(self.memories, arrays, strict=True):
            memory.write(array)


class _BoundStep(NamedTuple):
    """The decoder bound for a bucket and a source capacity, with run options; None: no CUDA graph."""

    binding: Any
    options: Any


class DeviceRuntime:
    """The sessions and the state of one engine. Not thread-safe."""

    def __init__(self, sessions: "DeviceSessions", slots: int) -> None:
        """Allocates the state of `slots` rows; raises an exception of ONNX Runtime if the device is out of memory."""
        manifest = sessions.manifest
        self.slots = slots
        self._sessions = sessions
        self._manifest = manifest
        self._tools = tools = sessions.tools
        self._row_buckets = ShapeBuckets(slots)
        self._source_buckets = ShapeBuckets(manifest.max_source_tokens, MIN_SOURCE_CAPACITY)
        self._encoder_buckets = ShapeBuckets(min(slots, ENCODER_ROWS))
        self._state = DeviceState(
            manifest.states,
            tools,
            element=sessions.element,
            rows=slots,
            encoder_rows=self._encoder_buckets.sizes[-1],
            max_source_tokens=manifest.max_source_tokens,
            max_target_tokens=manifest.max_target_tokens,
        )
        matrix = (slots, manifest.vocabulary_size)
        self._matrices = tuple(tools.allocate(slots * manifest.vocabulary_size) for _ in range(2))
        self._logits, self._log_probabilities = (memory.view(FLOAT, matrix) for memory in self._matrices)
        heads = len(manifest.alignment_heads) if sessions.aligned else 0
        self._host_alignments = np.zeros((slots, heads, manifest.max_source_tokens), np.float32)
        self._device_alignments = tools.allocate(max(1, self._host_alignments.size))
        self._computed = 0
        self._inputs: dict[int, _StepInputs] = {}
        self._steps: dict[tuple[int, int], _BoundStep] = {}
        self._shorter_steps = 0
        self._state.resize(self._source_buckets.sizes[0])

    def prepare(self) -> None:
        """Runs a step of every size, the largest first, to plan it, capture its CUDA graph and allocate its memory."""
        for capacity in reversed(self._source_buckets.sizes):
            self._state.resize(capacity)
            for bucket in reversed(self._row_buckets.sizes):
                self._run(bucket, NO_ROWS, NO_ROWS, NO_POSITIONS, NO_POSITIONS)

    def encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        """Encodes B sources in small batches; see `Model.encode`."""
        capacity = self._source_buckets.of(int(source_lengths.max()))
        if capacity > self._state.source_capacity:
            self._state.resize(capacity)
        self._shorter_steps = 0
        few = self._encoder_buckets.sizes[-1]
        for first in range(0, len(rows), few):
            part = slice(first, first + few)
            self._encode(source_ids[part], source_lengths[part], rows[part])

    def _encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        signature, capacity = self._manifest.encoder, self._state.source_capacity
        bucket = self._encoder_buckets.of(len(rows))
        length = min(source_ids.shape[1], capacity)  # beyond the capacity there is only padding
        padded_ids = np.full((bucket, capacity), self._manifest.pad_id)
        padded_ids[: len(rows), :length] = source_ids[:, :length]
        feeds = dict(
            zip(ENCODER_INPUTS, (padded_ids, _spread(source_lengths, np.arange(len(rows)), bucket, 1)), strict=True)
        )
        inputs = {name: feeds[name] for name in signature.inputs}
        self._tools.device.run(self._sessions.encoder, inputs, self._state.encoded(bucket))
        self._state.write(rows, bucket)

    def step(
        self,
        rows: NDArray[np.int64],
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        scored_rows: NDArray[np.int64] = NO_ROWS,  # noqa: ARG002 - all rows have logits
        best_count: int = 1,  # noqa: ARG002
        aligned: bool = False,  # noqa: ARG002 - a captured graph always computes them
    ) -> DeviceScores:
        """Computes one step; see `Model.step`."""
        self._shrink(source_lengths)
        self._computed = int(rows.max()) + 1
        bucket = self._row_buckets.of(self._computed)
        self._run(bucket, rows, token_ids, positions, source_lengths)
        return DeviceScores(self._tools, self._logits.first(bucket), self._log_probabilities.first(bucket))

    @property
    def alignments(self) -> NDArray[np.float32]:
        """Attention weights of A alignment heads in the last step, float32 [slots, A, capacity in source tokens].

        Fetched on access; valid for the rows of that step. A is 0 if the sessions are not aligned.
        """
        heads, capacity = self._host_alignments.shape[1], self._state.source_capacity
        if heads and self._computed:
            matrix = self._device_alignments.view(FLOAT, (self._computed, heads * capacity))
            fetched = self._tools.fetch(matrix, np.arange(self._computed))
            self._host_alignments[: self._computed, :, :capacity] = fetched.reshape(-1, heads, capacity)
        return self._host_alignments

    def branch_rows(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        positions: Sequence[int],  # noqa: ARG002
    ) -> None:
        """Copies rows over others of the same source; no row is both source and target."""
        self._state.branch(np.array(sources), np.array(targets))

    def _shrink(self, source_lengths: NDArray[np.int32]) -> None:
        """Reduces the source capacity after `SHRINK_STEPS` steps with only shorter sources."""
        fitting = self._source_buckets.of(int(source_lengths.max()))
        self._shorter_steps = self._shorter_steps + 1 if fitting < self._state.source_capacity else 0
        if self._shorter_steps >= SHRINK_STEPS:
            self._state.resize(fitting)
            self._shorter_steps = 0

    def _run(
        self,
        bucket: int,
        rows: NDArray[np.int64],
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
    ) -> None:
        if bucket not in self._inputs:
            self._inputs[bucket] = self._make_inputs(bucket)
        shape = bucket, self._state.source_capacity
        new = shape not in self._steps
        if new:
            self._steps[shape] = self._bind(bucket)
        self._inputs[bucket].write(
            _spread(token_ids, rows, bucket, self._manifest.bos_id),
            _spread(positions, rows, bucket, 0),
            _spread(source_lengths, rows, bucket, 1),
        )
        step = self._steps[shape]
        captures = new and step.options is not None
        with CUDA_GRAPH_LOCK.capture() if captures else CUDA_GRAPH_LOCK.use():
            self._sessions.decoder.run_with_iobinding(*(item for item in step if item is not None))

    def _make_inputs(self, bucket: int) -> _StepInputs:
        occupied = [self._tools.device.hold(np.zeros(bucket, dtype)) for dtype in (np.int64, np.int32, np.int32)]
        memories, views = zip(*occupied, strict=True)
        return _StepInputs(memories, dict(zip(DECODER_INPUTS, views, strict=True)))

    def _bind(self, bucket: int) -> _BoundStep:
        """Binds the decoder to the first rows. Past and present share memory, so the decoder writes in place."""
        signature, sessions = self._manifest.decoder, self._sessions
        inputs: dict[str, View] = {**self._inputs[bucket].views, **self._state.inputs(bucket)}
        outputs = {LOGITS: self._logits.first(bucket), **self._state.outputs(bucket)}
        if sessions.aligned:
            shape = (bucket, self._host_alignments.shape[1], self._state.source_capacity)
            outputs[ALIGNMENTS] = self._device_alignments.view(FLOAT, shape)
        binding = self._tools.device.bind(sessions.decoder, {name: inputs[name] for name in signature.inputs}, outputs)
        return _BoundStep(binding, onnx_runtime.run_options(next(sessions.graph_ids)) if sessions.captured else None)


def _spread(values: NDArray[Any], rows: NDArray[np.int64], size: int, filler: int) -> NDArray[Any]:
    """Returns an array of a size with values, [M], at the indices of rows, int64 [M]."""
    spread = np.full(size, filler, values.dtype)
    spread[rows] = values
    return spread


# ONNX element types of the states.
STATE_ELEMENTS: dict[Precision, int] = {"fp32": FLOAT, "int8": FLOAT, "fp16": FLOAT16}
# Bits of ONNX Runtime's `sdpa_kernel`: only flash attention and memory-efficient attention. By default it would choose
# by shape, so that a row's bits could depend on the number of rows.
PINNED_ATTENTION = 1 | 2


@dataclass(frozen=True, slots=True)
class DeviceSessions:
    """The sessions of one engine.

    Attributes:
        decoder: the plain decoder, or the one that also returns alignments.
        captured: whether decoder runs are captured as CUDA graphs.
        graph_ids: ids of CUDA graphs, from 1, since 0 is reserved by ONNX Runtime. An id stands for fixed addresses, so
            runtimes must not share one.
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
            device: the device of all sessions.
            aligned: whether steps return alignments; requires a bundle with alignment heads.
            memory_bytes: limit of each session's arena; None: all of the device.
            captured: whether to capture a GPU's steps as CUDA graphs.

        Raises BundleError if a state is not float attention, or ONNX Runtime rejects a graph.
        """
        _check_states(bundle)
        captured = captured and device.kind == "cuda"
        plain, capturing = (_provider(device, memory_bytes, captured=item) for item in (False, captured))
        options = onnx_runtime.session_options(threads=1)
        skipped = onnx_runtime.SLOW_FUSIONS if device.kind == "cpu" else ()
        return cls(
            bundle.manifest,
            DeviceTools.load(device, plain),
            encoder=onnx_runtime.open_session(bundle.encoder_path, options, [plain], skipped=skipped),
            decoder=onnx_runtime.open_session(
                bundle.aligned_decoder_path if aligned else bundle.decoder_path, options, [capturing], skipped=skipped
            ),
            aligned=aligned,
            captured=captured,
        )

    @property
    def element(self) -> int:
        """ONNX element type of the states."""
        return STATE_ELEMENTS[self.manifest.precision]

    def runtime(self, slots: int) -> DeviceRuntime:
        """Returns a runtime with its own state."""
        return DeviceRuntime(self, slots)


def _check_states(bundle: Bundle) -> None:
    if bundle.manifest.cache is not None:
        raise BundleError(f"{bundle.folder}: variant: {bundle.manifest.variant}, expected cuda on a device")
    for spec in bundle.manifest.states:
        if len(spec.shape) != 3 or not isinstance(spec.shape[1], str):  # noqa: PLR2004 - heads, length and size
            raise BundleError(
                f"{bundle.folder}: states: {spec.name}: shape {spec.shape}: expected heads, a length and a size: "
                "a device runs only Transformers"
            )


def _provider(device: Device, memory_bytes: int | None, *, captured: bool) -> onnx_runtime.Provider:
    if device.kind == "cpu":
        return onnx_runtime.CPU_PROVIDER
    options = {
        "device_id": str(device.number),
        # The state is a few large pieces: growth by powers of two would take up to twice the memory.
        "arena_extend_strategy": "kSameAsRequested",
        "enable_cuda_graph": str(int(captured)),
        "sdpa_kernel": str(PINNED_ATTENTION),
        "use_tf32": "0",
    }
    if memory_bytes is not None:
        options["gpu_mem_limit"] = str(memory_bytes)
    return onnx_runtime.CUDA_PROVIDER, options
