"""Runs graphs with states on the CPU: those of recurrent models, which have neither KV caches nor alignments.

A decoder step binds the first R rows of preallocated arrays; a row that no hypothesis has computes the first step of a
source of one token. Rows are the outermost axis, so a smaller R copies nothing. Binding takes longer than the rest of a
step's Python code, therefore the binding for each R is made once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle import manifest as contract
from dragoman.serve.bundle.bundle import LOG_PROBABILITIES_FILE, TOPK_FILE, Bundle
from dragoman.serve.runtime.decoder_state import DecoderState
from dragoman.serve.runtime.host import HostRuntime, HostSessions
from dragoman.serve.runtime.model import NO_ROWS, HostScores
from dragoman.serve.runtime.onnx_runtime import bind_array, open_session, shared_options


@dataclass(frozen=True, slots=True)
class Sessions(HostSessions):
    """The sessions of a bundle with states."""

    log_probabilities: Any
    topk: Any

    @classmethod
    def _open_others(cls, bundle: Bundle, threads: int) -> dict[str, Any]:
        options = shared_options(threads, {})
        return {
            "log_probabilities": open_session(bundle.folder / LOG_PROBABILITIES_FILE, options),
            "topk": open_session(bundle.folder / TOPK_FILE, options),
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
        self._bindings: dict[int, Any] = {}

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
        binding = self._bindings.get(computed)
        if binding is None:
            binding = self._bindings[computed] = self._bind(computed)
        self._sessions.decoder.run_with_iobinding(binding)
        self._state.advance(computed)
        return HostScores(self._logits, self)

    @property
    def alignments(self) -> NDArray[np.float32]:
        """An empty array, float32 [slots, 0, longest source]."""
        return np.zeros((self.slots, 0, self._manifest.max_source_tokens), np.float32)

    def log_probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns natural log-probabilities, float32 [M, V], of logits; NaN in a row with NaN, +inf or only -inf."""
        log_probabilities: NDArray[np.float32]
        (log_probabilities,) = self._sessions.log_probabilities.run(
            [contract.LOG_PROBABILITIES], {contract.LOGITS: logits}
        )
        return log_probabilities

    def best(self, scores: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns scores, float32 [M, count], best first, ties by lower id, and token ids, int64 [M, count]."""
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

    def _bind(self, rows: int) -> Any:
        given: list[NDArray[Any]] = [self._token_ids, self._positions, self._source_lengths]
        inputs = {**dict(zip(contract.DECODER_INPUTS, given, strict=True)), **self._state.inputs}
        outputs = {contract.LOGITS: self._logits, **self._state.outputs}
        signature = self._manifest.decoder
        binding = self._sessions.decoder.io_binding()
        for name in signature.inputs:
            bind_array(binding.bind_input, name, inputs[name][:rows])
        for name in signature.outputs:
            bind_array(binding.bind_output, name, outputs[name][:rows])
        return binding
