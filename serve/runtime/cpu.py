"""Runs graphs with states on the CPU: those of recurrent models, which have neither KV caches nor alignments.

A decoder step binds the first R rows of preallocated arrays; a row that no hypothesis has computes the first step of a
source of one token. Rows are the outermost axis, so a smaller R copies nothing. Binding takes longer than the rest of a
step's Python code, therefore the binding for each R is made once. `dragoman.serve.runtime.cuda.runtime` does the same
on a GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle import manifest as contract
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.decoder_state import DecoderState
from dragoman.serve.runtime.host import HostRuntime, HostSessions
from dragoman.serve.runtime.model import NO_ROWS, HostScores
from dragoman.serve.runtime.onnx_runtime import open_session, session_options, shared_options


class BoundArray(NamedTuple):
    """An array under the name that the graph uses, and the shape of one row."""

    name: str
    element: type[np.generic]
    row_shape: tuple[int, ...]
    address: int


class RowBindings:
    """The bindings of a session, one for each number of rows; the arrays must not move."""

    def __init__(self, session: Any, inputs: Mapping[str, NDArray[Any]], outputs: Mapping[str, NDArray[Any]]) -> None:
        """Stores arrays [rows, ...] by input or output name; binds nothing yet."""
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


def _bound(name: str, array: NDArray[Any]) -> BoundArray:
    return BoundArray(name, array.dtype.type, array.shape[1:], array.ctypes.data)


@dataclass(frozen=True, slots=True)
class Sessions(HostSessions):
    """The sessions of a bundle with states."""

    log_probabilities: Any
    topk: Any

    @classmethod
    def _open_others(cls, bundle: Bundle, threads: int) -> dict[str, Any]:
        options = shared_options(threads, {})
        return {
            "log_probabilities": open_session(bundle.log_probabilities_path, options),
            "topk": open_session(bundle.topk_path, options),
        }

    def runtime(self, slots: int) -> "Runtime":
        """Returns a runtime with its own state; see `Runtime`."""
        return Runtime(self, slots)


class Runtime(HostRuntime):
    """What one engine computes with: the shared sessions and its own state."""

    def __init__(self, sessions: Sessions, slots: int) -> None:
        """Allocates the state of `slots` rows."""
        super().__init__(slots)
        manifest = sessions.manifest
        self._sessions = sessions
        self._manifest = manifest
        self._state = DecoderState(manifest.states, slots=slots, max_source_tokens=manifest.max_source_tokens)
        self._token_ids = np.zeros(slots, np.int64)
        self._positions = np.zeros(slots, np.int32)
        self._source_lengths = np.zeros(slots, np.int32)
        self._logits = np.zeros((slots, manifest.vocabulary_size), np.float32)
        self._bindings = self._bind()

    def _encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        signature = self._manifest.encoder
        feeds = dict(zip(contract.ENCODER_INPUTS, (source_ids, source_lengths), strict=True))
        encoded = self._sessions.encoder.run(signature.outputs, {name: feeds[name] for name in signature.inputs})
        self._state.write(rows, source_lengths, encoded)

    def step(
        self,
        rows: NDArray[np.int64],
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        scored_rows: NDArray[np.int64] = NO_ROWS,  # noqa: ARG002 - all rows have logits
        best_count: int = 1,  # noqa: ARG002
        aligned: bool = False,  # noqa: ARG002 - there are none
    ) -> HostScores:
        """Computes one step; see `Model.step`."""
        computed = int(rows.max()) + 1
        self._token_ids[:computed] = self._manifest.bos_id
        self._positions[:computed] = 0
        self._source_lengths[:computed] = 1
        self._token_ids[rows] = token_ids
        self._positions[rows] = positions
        self._source_lengths[rows] = source_lengths
        self._bindings.run(computed)
        self._state.advance(computed)
        return HostScores(self._logits, self)

    @property
    def alignments(self) -> NDArray[np.float32]:
        """An empty array, float32 [slots, 0, longest source]."""
        return np.zeros((self.slots, 0, self._manifest.max_source_tokens), np.float32)

    def log_probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns natural log-probabilities of M rows of logits, both float32 [M, V].

        A row with NaN, with +inf or with only -inf becomes NaN.
        """
        log_probabilities: NDArray[np.float32]
        (log_probabilities,) = self._sessions.log_probabilities.run(
            [contract.LOG_PROBABILITIES], {contract.LOGITS: logits}
        )
        return log_probabilities

    def best(self, scores: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the `count` best tokens of M rows; `count` is at most V.

        Returns:
            scores, float32 [M, count], best first, and token ids, int64 [M, count]; ties put the lower id first.
        """
        best, token_ids = self._sessions.topk.run(
            contract.TOPK_OUTPUTS, dict(zip(contract.TOPK_INPUTS, (scores, np.array([count])), strict=True))
        )
        return best, token_ids

    def branch_rows(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        positions: Sequence[int],  # noqa: ARG002 - recurrent states have no length
    ) -> None:
        """Copies rows over others of the same source; no row is both source and target."""
        self._state.branch(sources, targets)

    def _bind(self) -> RowBindings:
        given: list[NDArray[Any]] = [self._token_ids, self._positions, self._source_lengths]
        inputs = {**dict(zip(contract.DECODER_INPUTS, given, strict=True)), **self._state.inputs}
        outputs = {contract.LOGITS: self._logits, **self._state.outputs}
        signature = self._manifest.decoder
        read = {name: inputs[name] for name in signature.inputs}
        written = {name: outputs[name] for name in signature.outputs}
        return RowBindings(self._sessions.decoder, read, written)


def save_optimized(graph: Path, out: Path) -> None:
    """Writes a graph as ONNX Runtime optimizes it for serving; raises BundleError if it rejects the graph."""
    options = session_options(threads=1)
    options.optimized_model_filepath = str(out)
    open_session(graph, options)
