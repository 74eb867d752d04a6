"""The model as ONNX Runtime computes it: sessions that all engines share, and a runtime with a state for each engine.

On the CPU; on a device it is `serve.runtime.cuda.runtime`. A decoder step binds views of the first R slots, so that
running fewer rows copies nothing; the bindings are made once for each R. Knows neither search nor sequences, and of the
architecture only the names of inputs and outputs.

What a decoder's session reads and writes in a step of R rows: the first R of arrays in this machine's memory.

The rows are the outermost axis, so that binding fewer of them copies nothing. To bind many arrays takes longer than the
rest of a step's Python; therefore it is done once for each R, and what does not depend on R once for all. Used by
`serve.runtime.cpu`; knows neither what the arrays mean nor how long a row is.

The weights that the graphs of a bundle have in common, mapped into memory once.

Each session would map them for itself. Called by `serve.runtime.cpu`.
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
    Length,
    Manifest,
)
from serve.runtime.kv_cache import DecoderState
from serve.runtime.model import HostScores
from serve.runtime.onnx_runtime import open_session, session_options, shared_options, value_on


class BoundArray(NamedTuple):
    """An array and the name that the graph has for it; a row of it has this shape."""

    name: str
    element: type[np.generic]
    row_shape: tuple[int, ...]
    address: int


class RowBindings:
    """The bindings of a session, as long as the arrays stay where they are."""

    def __init__(self, session: Any, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]) -> None:
        """Binds nothing yet.

        Args:
            session: of ONNX Runtime.
            inputs: what each input reads, [rows, ...], by its name.
            outputs: what each output writes, [rows, ...], by its name; the same memory as an input's writes in place.
        """
        self._session = session
        self._inputs = [_bound(name, array) for name, array in inputs.items()]
        self._outputs = [_bound(name, array) for name, array in outputs.items()]
        self._of_rows: dict[int, Any] = {}

    def of(self, rows: int) -> Any:
        """Returns the binding of a step of R rows."""
        binding = self._of_rows.get(rows)
        if binding is None:
            binding = self._of_rows[rows] = self._bind(rows)
        return binding

    def _bind(self, rows: int) -> Any:
        binding = self._session.io_binding()
        for bind, arrays in ((binding.bind_input, self._inputs), (binding.bind_output, self._outputs)):
            for array in arrays:
                bind(array.name, "cpu", 0, array.element, (rows, *array.row_shape), array.address)
        return binding


def _bound(name: str, array: NDArray[Any]) -> BoundArray:
    return BoundArray(name, array.dtype.type, array.shape[1:], array.ctypes.data)


@dataclass(frozen=True, slots=True)
class SharedWeights:
    """What encoder and decoder both read, as OrtValues; sessions do not keep it, so that it has to outlive them.

    Attributes:
        encoder: by the names of the encoder's initializers.
        decoder: the same by those of the decoder's.
    """

    encoder: dict[str, Any]
    decoder: dict[str, Any]

    @classmethod
    def of(cls, bundle: Bundle) -> Self:
        """Maps the weights that the manifest lists as shared.

        Only those pages take memory that somebody reads: of embeddings, the rows of tokens that occur.

        Raises:
            BundleError: if a weight does not lie in the file of weights.
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


# A sequence costs the encoder more alone than in company, but waits longer the more are encoded before they can run.
SLOTS_PER_ROW_AHEAD = 8
# The activations of more source tokens leave the caches of a CPU: in one run 2,560 tokens took 15 % longer, and memory
# for all of them.
ENCODED_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Sessions:
    """The sessions of a bundle; running them is thread-safe.

    Attributes:
        decoder: of the plain decoder, or of the one that also gives alignments.
        log_probabilities: of the graph that makes them of logits.
        topk: of the graph that finds the best tokens of each row.
        weights: what encoder and decoder both read.
    """

    manifest: Manifest
    encoder: Any
    decoder: Any
    log_probabilities: Any
    topk: Any
    aligned: bool
    weights: SharedWeights

    @classmethod
    def load(cls, bundle: Bundle, threads: int, *, aligned: bool = False, profile_prefix: Path | None = None) -> Self:
        """Opens the graphs of a bundle on the CPU.

        Args:
            bundle: a checked bundle.
            threads: threads that one operator may use; 1 is best when several engines share the CPUs.
            aligned: whether steps are to give alignments, which the bundle must have been exported for.
            profile_prefix: how the name of a file begins that ONNX Runtime writes the time of every node of the decoder
                to, until `decoder.end_profiling()` returns its name; None: no file, and no time spent on it.

        Raises:
            BundleError: if the graphs are not for a CPU, or ONNX Runtime refuses one.
        """
        if bundle.manifest.variant == "cuda":
            raise BundleError(
                f"{bundle.folder}: variant: cuda: expected cpu or portable on a CPU: export with `dragoman export "
                "--variant cpu`, or serve on an NVIDIA GPU with --device cuda"
            )
        weights = SharedWeights.of(bundle)
        options = shared_options(threads, {})
        decoder_path = bundle.aligned_decoder_path if aligned else bundle.decoder_path
        decoder_options = shared_options(threads, weights.decoder)
        if profile_prefix is not None:
            decoder_options.enable_profiling = True
            decoder_options.profile_file_prefix = str(profile_prefix)
        return cls(
            bundle.manifest,
            encoder=open_session(bundle.encoder_path, shared_options(threads, weights.encoder)),
            decoder=open_session(decoder_path, decoder_options),
            log_probabilities=open_session(bundle.log_probabilities_path, options),
            topk=open_session(bundle.topk_path, options),
            aligned=aligned,
            weights=weights,
        )

    @property
    def tight_lengths(self) -> tuple[Length, ...]:
        """Lengths whose capacity may be anything that the rows fit into.

        Alignments are computed for the whole capacity, and so is the attention of other graphs.
        """
        if not self.manifest.attends_to_lengths:
            return ()
        return ("target",) if self.aligned else ("source", "target")

    def runtime(self, slots: int, prefetched: int = 0) -> "Runtime":
        """Returns a runtime with a state of its own; see `Runtime`."""
        return Runtime(self, slots, prefetched)


def prefetched_rows(slots: int) -> int:
    """Returns how many rows an engine with so many slots does well to encode ahead."""
    return slots // SLOTS_PER_ROW_AHEAD


class Runtime:
    """What one engine computes with: the shared sessions and the state of its rows. Not thread-safe."""

    def __init__(self, sessions: Sessions, slots: int, prefetched: int = 0) -> None:
        """Allocates the state, which takes memory as far as it is used.

        Args:
            sessions: of the bundle.
            slots: the most rows of a step.
            prefetched: rows behind those, which have a state but take part in no step.
        """
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
            tight=sessions.tight_lengths,
        )
        self._token_ids = np.zeros(slots, np.int64)
        self._positions = np.zeros(slots, np.int32)
        self._source_lengths = np.zeros(slots, np.int32)
        self._logits = np.zeros((slots, manifest.vocabulary_size), np.float32)
        heads = len(manifest.alignment_heads) if sessions.aligned else 0
        self._alignments = np.zeros((slots, heads, manifest.max_source_tokens), np.float32)
        self._bindings = self._bind()
        self._bound_capacities = dict(self._state.capacities)

    def encode(self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Encodes B sources, a few at a time, and keeps what the decoder needs of each in its row.

        Args:
            source_ids: int64 [B, S], right-padded.
            source_lengths: int32 [B].
            rows: int64 [B].
        """
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
        occupied: int = 0,
    ) -> NDArray[np.float32]:
        """Computes one step of rows 0 to R - 1 and moves their state on by it.

        Args:
            token_ids: last token of each row, int64 [R].
            positions: tokens that each row has read already, int32 [R].
            source_lengths: int32 [R].
            occupied: rows that hold anything, if more than R.

        Returns:
            Logits, float32 [R, V], valid until the next call.
        """
        rows = len(token_ids)
        self._state.fit(max(rows, occupied), max(positions.tolist()) + 1)
        self._token_ids[:rows] = token_ids
        self._positions[:rows] = positions
        self._source_lengths[:rows] = source_lengths
        self._sessions.decoder.run_with_iobinding(self._binding(rows))
        self._state.advance(rows)
        return self._logits[:rows]

    def prepare(self) -> None:
        """Has nothing to do: there is nothing that a first step would have to make."""

    def step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
    ) -> HostScores:
        """Computes one step as `decode_step` does; returns what it says of the next tokens."""
        return HostScores(self.decode_step(token_ids, positions, source_lengths, occupied=occupied), self)

    @property
    def alignments(self) -> NDArray[np.float32]:
        """How much each of A alignment heads looked at each source position in the last step.

        float32 [slots, A, capacity in source tokens], valid for the rows of that step. A is 0 if the sessions are not
        aligned.
        """
        return self._alignments

    def log_probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns natural log-probabilities of M rows of logits, both float32 [M, V].

        A row with NaN, with +inf or with nothing but -inf becomes NaN.
        """
        log_probabilities: NDArray[np.float32]
        (log_probabilities,) = self._sessions.log_probabilities.run([LOG_PROBABILITIES], {LOGITS: logits})
        return log_probabilities

    def best(self, scores: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Finds the best tokens of M rows.

        Args:
            scores: float32 [M, V].
            count: how many of each row; at most V.

        Returns:
            their scores, float32 [M, count], best first, and token ids, int64 [M, count]; the lower id comes first in a
            tie.
        """
        best, token_ids = self._sessions.topk.run(
            TOPK_OUTPUTS, dict(zip(TOPK_INPUTS, (scores, np.array([count])), strict=True))
        )
        return best, token_ids

    def copy_row(self, source: int, target: int, positions: int, source_length: int) -> None:
        """Copies a row's state over that of another row, `positions` and `source_length` tokens of it."""
        self._state.copy(source, target, source_length=source_length, target_length=positions)

    def copy_rows(
        self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int], source_lengths: Sequence[int]
    ) -> None:
        """Copies rows as `copy_row` does."""
        for move in zip(sources, targets, positions, source_lengths, strict=True):
            self.copy_row(*move)

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies rows of the same source over others, `positions` tokens of each; no row is a source and a target."""
        self._state.branch(sources, targets, positions)

    def _binding(self, rows: int) -> Any:
        """Returns the binding of a step of R rows, as long as the state stays where it is."""
        if self._bound_capacities != self._state.capacities:
            self._bound_capacities = dict(self._state.capacities)
            self._bindings = self._bind()
        return self._bindings.of(rows)

    def _bind(self) -> RowBindings:
        given: list[NDArray[Any]] = [self._token_ids, self._positions, self._source_lengths]
        inputs = {**dict(zip(DECODER_INPUTS, given, strict=True)), **self._state.inputs}
        outputs = {LOGITS: self._logits, ALIGNMENTS: self._alignments, **self._state.outputs}
        signature = self._manifest.decoder
        written = (*signature.outputs, ALIGNMENTS) if self._sessions.aligned else signature.outputs
        return RowBindings(
            self._sessions.decoder,
            {name: inputs[name] for name in signature.inputs},
            {name: outputs[name] for name in written},
        )


def save_optimized(graph: Path, out: Path) -> None:
    """Writes a graph as a server's sessions run it, which is after ONNX Runtime's optimizations.

    Args:
        graph: an ONNX graph.
        out: the file to write; large weights stay where they are.

    Raises:
        BundleError: if ONNX Runtime refuses the graph.
    """
    options = session_options(threads=1)
    options.optimized_model_filepath = str(out)
    open_session(graph, options)
