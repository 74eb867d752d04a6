"""What one engine computes with on a device: state, logits and everything between two steps stay in its memory.

Steps run for a bucket of rows, so that every shape and address was seen before: on a GPU each was captured as a CUDA
graph while the engine got ready. The rows between those that run and the end of the bucket are free, or an engine would
run them; they compute at position 0 of a source of one token, and whoever gets such a row writes that position first.
Rows that are encoded ahead lie behind all slots, where no bucket reaches. On a CPU provider the same code runs without
CUDA graphs, which is how it is tested everywhere.

Shapes: R running rows, P rows of their bucket, C source capacity, V vocabulary, A alignment heads.

The few sizes that a device computes with: a size that was seen before needs neither planning nor capture again.

What a step says of the next tokens while its logits stay on the device: what crosses is a few numbers of each row.

Whole logits come over only for rows that constraints change or that draw, and go back once they are changed. See
`serve.runtime.model`, whose `HostScores` answers the same questions.

Shapes: R rows of the step, padded to P of its bucket, M some of them, V vocabulary.

The sessions of a bundle on a device: the same graphs and a runtime of the same form as on the CPU.

Each engine has its own, because a CUDA graph that a session captured belongs to the thread and the memory that it was
captured with. Knows nothing of how a device is chosen: that is `serve.runtime.placement`.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from serve.bundle.bundle import Bundle, BundleError
from serve.bundle.manifest import ALIGNMENTS, DECODER_INPUTS, ENCODER_INPUTS, LOGITS, Manifest, Precision
from serve.runtime.cuda.device import CUDA_GRAPH_LOCK, FLOAT, FLOAT16, Device, DeviceTools, Memory, View
from serve.runtime.cuda.kv_cache import DeviceState
from serve.runtime.onnx_runtime import (
    CPU_PROVIDER,
    CUDA_PROVIDER,
    SLOW_FUSIONS,
    Provider,
    open_session,
    run_options,
    session_options,
)


class ShapeBuckets:
    """Powers of two times the least size, and the most.

    Attributes:
        sizes: ascending, the last is the most.
    """

    def __init__(self, most: int, least: int = 1) -> None:
        """Makes them.

        Args:
            most: the largest size, positive.
            least: the smallest, unless the largest is smaller.
        """
        sizes = []
        size = least
        while size < most:
            sizes.append(size)
            size *= 2
        self.sizes = (*sizes, most)

    def of(self, size: int) -> int:
        """Returns the smallest bucket that holds a size, which is at most the largest."""
        return self.sizes[bisect_left(self.sizes, size)]


class Chosen(NamedTuple):
    """The best token of each row, int64 [P], and its log-probability, float32 [P]."""

    token_ids: NDArray[np.int64]
    scores: NDArray[np.float32]


class DeviceScores:
    """The logits of one step on a device."""

    def __init__(
        self, tools: DeviceTools, logits: View, log_probabilities: View, host_logits: NDArray[np.float32]
    ) -> None:
        """Computes nothing yet.

        Args:
            tools: of the device.
            logits: float [P, V].
            log_probabilities: where those of the logits may be written, float [P, V].
            host_logits: where fetched rows may be written, float32 [R, V].
        """
        self._tools = tools
        self._logits = logits
        self._log_probabilities = log_probabilities
        self._host_logits = host_logits
        self._known: Chosen | None = None

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Copies the logits of some rows into this machine's memory."""
        self._host_logits[rows] = self._tools.fetch(self._logits, rows)
        return self._host_logits

    def store(self, rows: NDArray[np.int64]) -> None:
        """Copies fetched rows back."""
        self._tools.copy(self._host_logits[rows], self._logits, np.arange(len(rows)), rows)
        self._known = None

    def greedy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the most probable tokens."""
        return self._chosen.token_ids[rows]

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns log-probabilities of tokens; only those of tokens that are not the best have to be fetched."""
        chosen = self._chosen
        if (chosen.token_ids[rows] == token_ids).all():
            return chosen.scores[rows]
        wanted = chosen.token_ids.copy()
        wanted[rows] = token_ids
        return self._tools.scores_of(self._log_probabilities, wanted)[rows]

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best tokens. They are found for every row, so that no shape depends on who asks."""
        assert self._chosen is not None  # noqa: S101 - it makes the log-probabilities
        scores, token_ids = self._tools.best(self._log_probabilities, min(count, self._logits.shape[1]))
        return scores[rows], token_ids[rows]

    @property
    def _chosen(self) -> Chosen:
        if self._known is None:
            last_id = np.array([[self._logits.shape[1] - 1]])
            self._known = Chosen(*self._tools.choose_tokens(self._logits, last_id, self._log_probabilities))
        return self._known


# The most sources that are encoded together: it bounds the memory that they wait in before they get their rows.
ENCODER_ROWS = 32
# Fewer positions than this are not worth a bucket of their own.
LEAST_SOURCE_CAPACITY = 32
# Steps with only shorter sources after which the state is laid out for them. Laying out takes about as long as a step.
SHRINK_STEPS = 64


class _StepInputs(NamedTuple):
    """What changes with every step of one bucket, at addresses that do not: CUDA graphs hold these."""

    memories: tuple[Memory, ...]
    views: dict[str, View]

    def write(self, *arrays: NDArray[Any]) -> None:
        """Overwrites them with arrays of the bucket's size."""
        for memory, array in zip(self.memories, arrays, strict=True):
            memory.write(array)


class _BoundStep(NamedTuple):
    """The decoder bound for a bucket of rows and a source capacity, and the options of its runs; None: no capture."""

    binding: Any
    options: Any


class DeviceRuntime:
    """The sessions of one engine and the state of its rows. Not thread-safe."""

    def __init__(self, sessions: "DeviceSessions", slots: int, prefetched: int = 0) -> None:
        """Allocates the state.

        Args:
            sessions: of the bundle, used by one thread alone.
            slots: the most rows of a step.
            prefetched: rows behind those, which have a state but take part in no step.

        Raises:
            Exception: whatever ONNX Runtime raises if there is not so much memory.
        """
        manifest = sessions.manifest
        self.slots = slots
        self.prefetched = prefetched
        self._sessions = sessions
        self._manifest = manifest
        self._tools = tools = sessions.tools
        self._row_buckets = ShapeBuckets(slots)
        self._source_buckets = ShapeBuckets(manifest.max_source_tokens, LEAST_SOURCE_CAPACITY)
        self._encoder_buckets = ShapeBuckets(min(slots + prefetched, ENCODER_ROWS))
        self._state = DeviceState(
            manifest.states,
            tools,
            element=sessions.element,
            rows=slots + prefetched,
            encoder_rows=self._encoder_buckets.sizes[-1],
            max_source_tokens=manifest.max_source_tokens,
            max_target_tokens=manifest.max_target_tokens,
        )
        matrix = (slots, manifest.vocabulary_size)
        self._matrices = tuple(tools.allocate(slots * manifest.vocabulary_size) for _ in range(2))
        self._logits, self._log_probabilities = (memory.view(FLOAT, matrix) for memory in self._matrices)
        # Taken as far as it is used, which is as far as requests constrain or draw.
        self._host_logits = np.zeros(matrix, np.float32)
        heads = len(manifest.alignment_heads) if sessions.aligned else 0
        self._host_alignments = np.zeros((slots, heads, manifest.max_source_tokens), np.float32)
        self._device_alignments = tools.allocate(max(1, self._host_alignments.size))
        self._last_rows = 0
        self._inputs: dict[int, _StepInputs] = {}
        self._steps: dict[tuple[int, int], _BoundStep] = {}
        self._shorter_steps = 0
        self._state.resize(self._source_buckets.sizes[0])

    def prepare(self) -> None:
        """Runs a step of every size, the largest first, so that each is planned, captured and has its memory."""
        for capacity in reversed(self._source_buckets.sizes):
            self._state.resize(capacity)
            for bucket in reversed(self._row_buckets.sizes):
                nothing = np.zeros(bucket, np.int32)
                self._run(bucket, nothing, nothing, nothing + 1)

    def encode(self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Encodes B sources, a few at a time, and keeps what the decoder needs of each in its row.

        Args:
            source_ids: int64 [B, S], right-padded.
            source_lengths: int32 [B].
            rows: int64 [B].
        """
        capacity = self._source_buckets.of(int(source_lengths.max()))
        if capacity > self._state.source_capacity:
            self._state.resize(capacity)
        self._shorter_steps = 0
        few = self._encoder_buckets.sizes[-1]
        for first in range(0, len(rows), few):
            part = slice(first, first + few)
            self._encode(source_ids[part], source_lengths[part], rows[part])

    def _encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: NDArray[np.int64]
    ) -> None:
        signature, capacity = self._manifest.encoder, self._state.source_capacity
        bucket = self._encoder_buckets.of(len(rows))
        length = min(source_ids.shape[1], capacity)  # what is behind the capacity is padding
        padded_ids = np.full((bucket, capacity), self._manifest.pad_id)
        padded_ids[: len(rows), :length] = source_ids[:, :length]
        feeds = dict(zip(ENCODER_INPUTS, (padded_ids, _padded(source_lengths, bucket, 1)), strict=True))
        inputs = {name: feeds[name] for name in signature.inputs}
        self._tools.device.run(self._sessions.encoder, inputs, self._state.encoded(bucket))
        self._state.write(rows, bucket)

    def step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
    ) -> DeviceScores:
        """Computes one step of rows 0 to R - 1 and moves their state on by it.

        Args:
            token_ids: last token of each row, int64 [R].
            positions: tokens that each row has read already, int32 [R].
            source_lengths: int32 [R].
            occupied: rows that hold anything, if more than R.

        Returns:
            what it says of the next tokens, valid until the next call.
        """
        rows = len(token_ids)
        self._shrink(source_lengths, occupied)
        bucket = self._row_buckets.of(rows)
        self._run(bucket, token_ids, positions, source_lengths)
        self._last_rows = rows
        return DeviceScores(
            self._tools, self._logits.first(bucket), self._log_probabilities.first(bucket), self._host_logits[:rows]
        )

    def decode_step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
    ) -> NDArray[np.float32]:
        """Computes a step as `step` does; returns all logits, float32 [R, V], valid until the next call."""
        return self.step(token_ids, positions, source_lengths, occupied=occupied).fetch(np.arange(len(token_ids)))

    @property
    def alignments(self) -> NDArray[np.float32]:
        """How much each of A alignment heads looked at each source position in the last step.

        float32 [slots, A, capacity in source tokens], valid for the rows of that step; fetched when it is asked for. A
        is 0 if the sessions are not aligned.
        """
        heads, capacity = self._host_alignments.shape[1], self._state.source_capacity
        if heads and self._last_rows:
            matrix = self._device_alignments.view(FLOAT, (self._last_rows, heads * capacity))
            fetched = self._tools.fetch(matrix, np.arange(self._last_rows))
            self._host_alignments[: self._last_rows, :, :capacity] = fetched.reshape(-1, heads, capacity)
        return self._host_alignments

    def copy_rows(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        positions: Sequence[int],  # noqa: ARG002 - the device copies whole rows
        source_lengths: Sequence[int],  # noqa: ARG002
    ) -> None:
        """Copies rows over others; no row is a source and a target."""
        self._state.copy(np.array(sources), np.array(targets))

    def branch_rows(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        positions: Sequence[int],  # noqa: ARG002
    ) -> None:
        """Copies rows of the same source over others; no row is a source and a target."""
        self._state.branch(np.array(sources), np.array(targets))

    def _shrink(self, source_lengths: NDArray[np.int32], occupied: int) -> None:
        """Lays the state out for shorter sources once only such have run for a while."""
        # Behind the slots there are sources of other lengths, which nobody tells of.
        fitting = self._source_buckets.of(int(source_lengths.max()))
        shorter = occupied <= self.slots and fitting < self._state.source_capacity
        self._shorter_steps = self._shorter_steps + 1 if shorter else 0
        if self._shorter_steps >= SHRINK_STEPS:
            self._state.resize(fitting)
            self._shorter_steps = 0

    def _run(
        self,
        bucket: int,
        token_ids: NDArray[np.integer],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
    ) -> None:
        if bucket not in self._inputs:
            self._inputs[bucket] = self._make_inputs(bucket)
        place = bucket, self._state.source_capacity
        new = place not in self._steps
        if new:
            self._steps[place] = self._bind(bucket)
        self._inputs[bucket].write(
            _padded(token_ids.astype(np.int64), bucket, self._manifest.bos_id),
            _padded(positions, bucket, 0),
            _padded(source_lengths, bucket, 1),
        )
        step = self._steps[place]
        captures = new and step.options is not None
        with CUDA_GRAPH_LOCK.capture() if captures else CUDA_GRAPH_LOCK.use():
            self._sessions.decoder.run_with_iobinding(*(each for each in step if each is not None))

    def _make_inputs(self, bucket: int) -> _StepInputs:
        occupied = [self._tools.device.hold(np.zeros(bucket, dtype)) for dtype in (np.int64, np.int32, np.int32)]
        memories, views = zip(*occupied, strict=True)
        return _StepInputs(memories, dict(zip(DECODER_INPUTS, views, strict=True)))

    def _bind(self, bucket: int) -> _BoundStep:
        """Binds the decoder to the first rows: the same memory for past and present makes it in place."""
        signature, sessions = self._manifest.decoder, self._sessions
        inputs: dict[str, View] = {**self._inputs[bucket].views, **self._state.inputs(bucket)}
        outputs = {LOGITS: self._logits.first(bucket), **self._state.outputs(bucket)}
        if sessions.aligned:
            shape = (bucket, self._host_alignments.shape[1], self._state.source_capacity)
            outputs[ALIGNMENTS] = self._device_alignments.view(FLOAT, shape)
        binding = self._tools.device.bind(sessions.decoder, {name: inputs[name] for name in signature.inputs}, outputs)
        return _BoundStep(binding, run_options(next(sessions.graph_ids)) if sessions.captured else None)


def _padded(values: NDArray[Any], size: int, filler: int) -> NDArray[Any]:
    """Returns values, [M], filled up to a size."""
    padded = np.full(size, filler, values.dtype)
    padded[: len(values)] = values
    return padded


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

    def runtime(self, slots: int, prefetched: int = 0) -> DeviceRuntime:
        """Returns a runtime with a state of its own."""
        return DeviceRuntime(self, slots, prefetched)


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
