"""Runs graphs with states on the CPU: sessions that all engines share, and one runtime with its own state per engine.

A decoder step binds the first R rows of preallocated arrays. Rows are the outermost axis, so a smaller R copies
nothing. Binding takes longer than the rest of a step's Python code, therefore the binding for each R is made once.

Weights that several graphs read are mapped into memory once. `serve.runtime.cuda.runtime` does the same on a GPU.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from serve.bundle.bundle import WEIGHTS_FILE, Bundle, BundleError
from serve.bundle.manifest import (
    ALIGNMENTS,
    DECODER_INPUTS,
    ENCODER_INPUTS,
    LOG_PROBABILITIES,
    LOGITS,
    TOPK_INPUTS,
    TOPK_OUTPUTS,
    Manifest,
)
from serve.runtime.kv_cache import DecoderState
from serve.runtime.model import NO_ROWS, HostScores
from serve.runtime.onnx_runtime import open_session, session_options, shared_options, value_on


class BoundArray(NamedTuple):
    """An array under the name that the graph uses, and the shape of one row."""

    name: str
    element: type[np.generic]
    row_shape: tuple[int, ...]
    address: int


class RowBindings:
    """The bindings of a session, one for each number of rows; the arrays must not move."""

    def __init__(self, session: Any, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]) -> None:
        """Stores arrays [rows, ...] by input or output name; binds nothing yet.

        An output that shares the memory of an input is written in place.
        """
        self._session = session
        self._inputs = [_bound(name, array) for name, array in inputs.items()]
        self._outputs = [_bound(name, array) for name, array in outputs.items()]
        self._of_rows: dict[int, Any] = {}

    def run(self, rows: int) -> None:
        """Runs the session with the first R rows."""
        binding = self._of_rows.get(rows)
        if binding is None:
            binding = self._of_rows[rows] = self._bind(rows)
        self._session.run_with_iobinding(binding)

    def _bind(self, rows: int) -> Any:
        binding = self._session.io_binding()
        for bind, arrays in ((binding.bind_input, self._inputs), (binding.bind_output, self._outputs)):
            for array in arrays:
                bind(array.name, "cpu", 0, array.element, (rows, *array.row_shape), array.address)
        return binding


class DecoderBindings(NamedTuple):
    """The bindings of steps without and with alignments; without an aligned decoder, the latter cannot run."""

    plain: RowBindings
    aligned: RowBindings


def _bound(name: str, array: NDArray[Any]) -> BoundArray:
    return BoundArray(name, array.dtype.type, array.shape[1:], array.ctypes.data)


@dataclass(frozen=True, slots=True)
class SharedWeights:
    """OrtValues that encoder and decoder both read, by initializer name. They must outlive the sessions."""

    encoder: dict[str, Any]
    decoder: dict[str, Any]

    @classmethod
    def of(cls, bundle: Bundle) -> Self:
        """Maps the weights that the manifest lists as shared. Only pages that are read take memory.

        Raises:
            BundleError: if a weight does not fit into the file of weights.
        """
        shared = cls({}, {})
        path = bundle.folder / WEIGHTS_FILE
        for weight in bundle.manifest.shared_weights:
            size_bytes = np.dtype(weight.type).itemsize * math.prod(weight.shape)
            expected = path.stat().st_size - size_bytes
            if weight.offset_bytes > expected:
                raise BundleError(
                    f"{path}: shared_weights: {weight.encoder_name}: offset_bytes: {weight.offset_bytes}: "
                    f"expected at most {expected}"
                )
            array = np.memmap(path, weight.type, "r", weight.offset_bytes, weight.shape)
            shared.encoder[weight.encoder_name] = shared.decoder[weight.decoder_name] = value_on("cpu", 0, array)
        return shared


# A larger encoder batch costs less per sequence, but its sequences wait longer before they can run.
SLOTS_PER_ROW_AHEAD = 8
# The activations of more source tokens do not fit into CPU caches: in one run 2,560 tokens took 15 % longer, and memory
# for all of them.
ENCODED_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of a bundle. Running them is thread-safe.

    Attributes:
        aligned_decoder: also returns alignments; None if they are off.
    """

    manifest: Manifest
    encoder: Any
    decoder: Any
    log_probabilities: Any
    topk: Any
    aligned_decoder: Any | None
    weights: SharedWeights

    @classmethod
    def load(cls, bundle: Bundle, threads: int, *, aligned: bool = False, profile_prefix: Path | None = None) -> Self:
        """Opens the graphs of a bundle; see `serve.runtime.sessions.load_sessions`.

        Raises:
            BundleError: if the graphs need a GPU, or ONNX Runtime rejects one.
        """
        if bundle.manifest.variant == "cuda":
            raise BundleError(
                f"{bundle.folder}: variant: cuda, expected cpu or portable on a CPU: export with `dragoman export "
                "--variant cpu`, or serve on an NVIDIA GPU with --device cuda"
            )
        weights = SharedWeights.of(bundle)
        options = shared_options(threads, {})
        aligned_options, decoder_options = (shared_options(threads, weights.decoder) for _ in range(2))
        if profile_prefix is not None:
            decoder_options.enable_profiling = True
            decoder_options.profile_file_prefix = str(profile_prefix)
        return cls(
            bundle.manifest,
            encoder=open_session(bundle.encoder_path, shared_options(threads, weights.encoder)),
            decoder=open_session(bundle.decoder_path, decoder_options),
            log_probabilities=open_session(bundle.log_probabilities_path, options),
            topk=open_session(bundle.topk_path, options),
            aligned_decoder=open_session(bundle.aligned_decoder_path, aligned_options) if aligned else None,
            weights=weights,
        )

    @property
    def aligned(self) -> bool:
        """Whether steps can return alignments."""
        return self.aligned_decoder is not None

    def runtime(self, slots: int, prefetched: int = 0) -> "Runtime":
        """Returns a runtime with its own state; see `Runtime`."""
        return Runtime(self, slots, prefetched)


def prefetched_rows(slots: int) -> int:
    """Returns how many rows an engine with this many slots should prefetch."""
    return slots // SLOTS_PER_ROW_AHEAD


class Runtime:
    """What one engine computes with: the shared sessions and its own state. Not thread-safe."""

    def __init__(self, sessions: Sessions, slots: int, prefetched: int = 0) -> None:
        """Allocates the state for `slots` rows of steps and `prefetched` rows behind them."""
        manifest = sessions.manifest
        self.slots = slots
        self.prefetched = prefetched
        self._sessions = sessions
        self._manifest = manifest
        self._state = DecoderState(
            manifest.states,
            slots=slots + prefetched,
            max_source_tokens=manifest.max_source_tokens,
            max_target_tokens=manifest.max_target_tokens,
        )
        self._token_ids = np.zeros(slots, np.int64)
        self._positions = np.zeros(slots, np.int32)
        self._source_lengths = np.zeros(slots, np.int32)
        self._logits = np.zeros((slots, manifest.vocabulary_size), np.float32)
        heads = len(manifest.alignment_heads) if sessions.aligned else 0
        self._alignments = np.zeros((slots, heads, manifest.max_source_tokens), np.float32)
        self._bindings = self._bind()

    def encode(self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Encodes B sources in small batches; see `Model.encode`."""
        signature = self._manifest.encoder
        count, length = source_ids.shape
        few = max(1, ENCODED_TOKENS // length)
        for first in range(0, count, few):
            part = slice(first, first + few)
            feeds = dict(zip(ENCODER_INPUTS, (source_ids[part], source_lengths[part]), strict=True))
            wanted = {name: feeds[name] for name in signature.inputs}
            encoded = self._sessions.encoder.run(signature.outputs, wanted)
            self._state.write(rows[part], source_lengths[part], encoded)

    def decode_step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        aligned: bool = False,
    ) -> NDArray[np.float32]:
        """Computes one step as `Model.step` does; returns logits, float32 [R, V], valid until the next call."""
        rows = len(token_ids)
        self._token_ids[:rows] = token_ids
        self._positions[:rows] = positions
        self._source_lengths[:rows] = source_lengths
        (self._bindings.aligned if aligned else self._bindings.plain).run(rows)
        self._state.advance(rows)
        return self._logits[:rows]

    def prepare(self) -> None:
        """Does nothing: the first step needs no preparation."""

    def step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,  # noqa: ARG002 - slots do not move
        scored_rows: NDArray[np.int64] = NO_ROWS,  # noqa: ARG002 - all rows have logits
        best_count: int = 1,  # noqa: ARG002
        aligned: bool = False,
    ) -> HostScores:
        """Computes one step as `decode_step` does; returns the scores of the next tokens."""
        return HostScores(self.decode_step(token_ids, positions, source_lengths, aligned=aligned), self)

    @property
    def alignments(self) -> NDArray[np.float32]:
        """Attention weights of A alignment heads in the last step, float32 [slots, A, capacity in source tokens].

        Valid for the rows of that step if it was aligned. A is 0 if the sessions are not aligned.
        """
        return self._alignments

    def log_probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns natural log-probabilities of M rows of logits, both float32 [M, V].

        A row with NaN, with +inf or with only -inf becomes NaN.
        """
        log_probabilities: NDArray[np.float32]
        (log_probabilities,) = self._sessions.log_probabilities.run([LOG_PROBABILITIES], {LOGITS: logits})
        return log_probabilities

    def best(self, scores: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the `count` best tokens of M rows; `count` is at most V.

        Returns:
            scores, float32 [M, count], best first, and token ids, int64 [M, count]; ties put the lower id first.
        """
        best, token_ids = self._sessions.topk.run(
            TOPK_OUTPUTS, dict(zip(TOPK_INPUTS, (scores, np.array([count])), strict=True))
        )
        return best, token_ids

    def copy_row(self, source: int, target: int, positions: int, source_length: int) -> None:
        """Copies one row's state over another's: `positions` target tokens and `source_length` source tokens."""
        self._state.copy(source, target, source_length=source_length, target_length=positions)

    def copy_rows(
        self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int], source_lengths: Sequence[int]
    ) -> None:
        """Copies rows as `copy_row` does, in order."""
        for move in zip(sources, targets, positions, source_lengths, strict=True):
            self.copy_row(*move)

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies rows over others of the same source, `positions` tokens each; no row is both source and target."""
        self._state.branch(sources, targets, positions)

    def _bind(self) -> DecoderBindings:
        given: list[NDArray[Any]] = [self._token_ids, self._positions, self._source_lengths]
        inputs = {**dict(zip(DECODER_INPUTS, given, strict=True)), **self._state.inputs}
        outputs = {LOGITS: self._logits, **self._state.outputs}
        signature = self._manifest.decoder
        read = {name: inputs[name] for name in signature.inputs}
        written = {name: outputs[name] for name in signature.outputs}
        return DecoderBindings(
            RowBindings(self._sessions.decoder, read, written),
            RowBindings(self._sessions.aligned_decoder, read, {**written, ALIGNMENTS: self._alignments}),
        )


def save_optimized(graph: Path, out: Path) -> None:
    """Writes a graph as ONNX Runtime optimizes it for serving; raises BundleError if it rejects the graph."""
    options = session_options(threads=1)
    options.optimized_model_filepath = str(out)
    open_session(graph, options)
