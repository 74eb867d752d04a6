"""Runs native graphs on the CPU.

A step names the slots of each row. Target slots are the rows; the source slot of a sequence is its first row. Caches
are bound in place: only written pages take memory, and nothing is copied.

The decoder returns the best tokens of every row. It returns logits only of rows that the search changes or samples
from; `Choose` finds the best tokens of changed logits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle import manifest as contract
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.host import SharedWeights, lazy_zeros
from dragoman.serve.runtime.model import NO_ROWS
from dragoman.serve.runtime.onnx_runtime import bind_array, open_session, shared_options

Array = NDArray[Any]
# Most bindings that a runtime keeps; there may be one for each number of rows, of scored rows and of best tokens.
MAX_BINDINGS = 512
# The engine in Python forbids other tokens than candidates itself.
NO_CANDIDATES: dict[str, Array] = dict(
    zip(contract.CANDIDATE_INPUTS, (np.zeros(0, np.int32), np.zeros((0, 2), np.int32)), strict=True)
)
# The activations of more source tokens do not fit into CPU caches: in one run 2,560 tokens took 15 % longer, and memory
# for all of them.
ENCODED_TOKENS = 256
# Value of the input `aligned`; 1: the alignment heads, 0: none.
EVERY_HEAD = 2


@dataclass(frozen=True, slots=True)
class NativeSessions:
    """The sessions of a bundle. Running them is thread-safe; `aligned`: whether steps can return alignments."""

    manifest: contract.Manifest
    weights: SharedWeights
    aligned: bool
    encoder: Any
    decoder: Any
    choose: Any

    @classmethod
    def load(cls, bundle: Bundle, threads: int, *, aligned: bool = False) -> Self:
        """Opens the graphs, as `load_sessions` does; raises BundleError if they need a GPU or one is rejected."""
        weights = SharedWeights.of(bundle)
        return cls(
            bundle.manifest,
            weights,
            aligned,
            open_session(bundle.encoder_path, shared_options(threads, weights.encoder)),
            open_session(bundle.decoder_path, shared_options(threads, weights.decoder)),
            open_session(bundle.choose_path, shared_options(threads, {})),
        )

    def runtime(self, slots: int) -> "NativeRuntime":
        """Returns a runtime with its own state; see `NativeRuntime`."""
        return NativeRuntime(self, slots)


class Best(NamedTuple):
    """The best tokens, int64 [R, C], with natural log-probabilities, and log-sums of exponentials, float32 [R]."""

    log_sums: NDArray[np.float32]
    scores: NDArray[np.float32]
    token_ids: NDArray[np.int64]


class NativeScores:
    """`dragoman.serve.runtime.model.Scores` of one step. Logits are known of the rows that the step requested."""

    def __init__(
        self,
        rows: NDArray[np.int64],
        scored_rows: NDArray[np.int64],
        best: Best,
        logits: NDArray[np.float32],
        choose: Callable[[NDArray[np.float32], int], Best],
    ) -> None:
        """Stores the best tokens of R rows, int64 [R], and logits of the M scored ones, float32 [M, V].

        `choose` returns the best tokens of logits.
        """
        self._row_indices = {row: index for index, row in enumerate(rows.tolist())}
        self._scored_indices = {row: index for index, row in enumerate(scored_rows.tolist())}
        self._best = best
        self._logits = logits
        self._choose = choose

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns a copy of the logits of rows."""
        return self._logits[_indices(self._scored_indices, rows)]

    def store(self, rows: NDArray[np.int64], logits: NDArray[np.float32]) -> None:
        """Replaces the logits of rows, and finds their best tokens."""
        self._logits[_indices(self._scored_indices, rows)] = logits
        chosen = self._choose(logits, self._best.scores.shape[1])
        indices = _indices(self._row_indices, rows)
        self._best.log_sums[indices] = chosen.log_sums
        self._best.scores[indices] = chosen.scores
        self._best.token_ids[indices] = chosen.token_ids

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the log-probabilities of tokens of rows with logits."""
        logits = self._logits[_indices(self._scored_indices, rows), token_ids]
        return np.asarray(logits - self._best.log_sums[_indices(self._row_indices, rows)])

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best tokens, at most as many as the step requested."""
        indices = _indices(self._row_indices, rows)
        return self._best.scores[indices, :count], self._best.token_ids[indices, :count]


def _indices(indices: Mapping[int, int], rows: NDArray[np.int64]) -> list[int]:
    return [indices[row] for row in rows.tolist()]


class _BoundStep(NamedTuple):
    """The decoder bound for R rows, M of them with logits, and C best tokens of each, with the memory of the latter."""

    binding: Any
    best: Best
    kept: tuple[Array, ...]


class NativeRuntime:
    """What one engine computes with: the shared sessions and its own caches. Not thread-safe."""

    def __init__(self, sessions: NativeSessions, slots: int, *, every_head: bool = False) -> None:
        """Allocates the caches of `slots` rows.

        With `every_head`, aligned steps return the attention of all heads, layer by layer. Only kernels can.
        """
        self.slots = slots
        manifest = sessions.manifest
        self._sessions = sessions
        self._vocabulary_size = manifest.vocabulary_size
        self._longest_source = manifest.max_source_tokens
        self._targets = _allocate(manifest, "target", manifest.max_target_tokens, slots)
        self._sources = _allocate(manifest, "source", manifest.max_source_tokens, slots)
        self._source_slots = np.arange(slots, dtype=np.int32)  # of each row
        self._inputs = {
            name: np.zeros(slots, np.int64 if name == "token_ids" else np.int32) for name in contract.STEP_INPUTS
        }
        self._logits = lazy_zeros((slots, self._vocabulary_size), np.float32)
        capacity = next(iter(self._sources.values())).shape[2] * contract.CACHE_BLOCK_TOKENS
        self._every_head, heads = every_head, len(manifest.alignment_heads)
        if every_head and manifest.cache is not None:
            heads = manifest.cache.layers * manifest.cache.heads
        self._alignments = lazy_zeros((slots, heads, capacity), np.float32)
        self._aligned_rows = NO_ROWS
        self._bound: dict[tuple[int, int, int, bool], _BoundStep] = {}
        self._encoding = sessions.encoder.io_binding()
        for name, array in self._sources.items():
            bind_array(self._encoding.bind_input, name, array)
            bind_array(self._encoding.bind_output, contract.present(name), array)

    @property
    def alignments(self) -> NDArray[np.float32]:
        """Attention weights of A alignment heads in the last step, float32 [slots, A, S].

        Valid for the rows of that step if it was aligned. A is 0 if the sessions are not aligned.
        """
        heads = self._alignments.shape[1] if self._sessions.aligned else 0
        alignments = np.zeros((self.slots, heads, self._longest_source), np.float32)
        alignments[self._aligned_rows] = self._alignments[: len(self._aligned_rows), :heads, : self._longest_source]
        return alignments

    def encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        """Encodes B sources, a few at a time; see `Model.encode`."""
        few = max(1, ENCODED_TOKENS // source_ids.shape[1])
        for first in range(0, len(rows), few):
            part = slice(first, first + few)
            self._encode(source_ids[part], source_lengths[part], rows[part])

    def _encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        # Rows of sequences that have ended may keep slots, but rows that get none leave as many free.
        self._source_slots[np.concatenate(rows)] = -1
        slots = np.setdiff1d(np.arange(self.slots, dtype=np.int32), self._source_slots)[: len(rows)]
        for slot, own in zip(slots, rows, strict=True):
            self._source_slots[own] = slot
        valid = np.arange(source_ids.shape[1]) < source_lengths[:, np.newaxis]
        given: tuple[Array, ...] = source_ids[valid], source_lengths, slots
        for name, array in zip(contract.ENCODE_INPUTS, given, strict=True):
            bind_array(self._encoding.bind_input, name, array)
        self._sessions.encoder.run_with_iobinding(self._encoding)

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
        given: dict[str, Array] = {
            "token_ids": token_ids,
            "positions": positions,
            "target_slots": rows,
            "source_slots": self._source_slots[rows],
            "source_lengths": source_lengths,
            "scored_rows": np.flatnonzero(np.isin(rows, scored_rows)),
        }
        for name, values in given.items():
            self._inputs[name][: len(values)] = values
        scored = len(scored_rows)
        bound = self._bind_step(len(rows), scored, min(best_count, self._vocabulary_size), aligned)
        if aligned and self._every_head:
            # The graph states the shape of the chosen heads, so ONNX Runtime allocates the output anew.
            bound.binding.bind_output(contract.ALIGNMENTS, "cpu")
            self._sessions.decoder.run_with_iobinding(bound.binding)
            self._alignments[: len(rows)] = bound.binding.get_outputs()[-1].numpy()
        else:
            self._sessions.decoder.run_with_iobinding(bound.binding)
        self._aligned_rows = rows if aligned else NO_ROWS
        return NativeScores(rows, scored_rows, bound.best, self._logits[:scored], self._choose)

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies filled blocks of rows over others of the same source."""
        for source, target, length in zip(sources, targets, positions, strict=True):
            blocks = -(-length // contract.CACHE_BLOCK_TOKENS)
            for array in self._targets.values():
                array[target, :, :blocks] = array[source, :, :blocks]

    def _choose(self, logits: NDArray[np.float32], count: int) -> Best:
        """Returns the best tokens of M rows of logits, float32 [M, V], bitwise as a step returns them."""
        feeds = dict(zip(contract.CHOOSE_INPUTS, (logits, np.array([count], np.int32)), strict=True))
        return Best(*self._sessions.choose.run(contract.CHOICE, feeds))

    def _bind_step(self, rows: int, scored: int, count: int, aligned: bool) -> _BoundStep:
        """Returns the binding of a step; making one takes longer than the rest of a step's Python code."""
        key = rows, scored, count, aligned
        bound = self._bound.get(key)
        if bound is None:
            if len(self._bound) == MAX_BINDINGS:
                self._bound.clear()
            bound = self._bound[key] = self._make_step(*key)
        return bound

    def _make_step(self, rows: int, scored: int, count: int, aligned: bool) -> _BoundStep:
        binding = self._sessions.decoder.io_binding()
        best = Best(np.zeros(rows, np.float32), np.zeros((rows, count), np.float32), np.zeros((rows, count), np.int64))
        wanted = EVERY_HEAD if aligned and self._every_head else int(aligned)
        constants = {"best_count": np.array([count], np.int32), "aligned": np.array([wanted], np.int32)}
        inputs: dict[str, Array] = {name: array[:rows] for name, array in self._inputs.items()}
        inputs |= {"scored_rows": self._inputs["scored_rows"][:scored], **constants, **self._targets, **self._sources}
        if self._sessions.manifest.shortlist:
            inputs |= NO_CANDIDATES
        for name, array in inputs.items():
            bind_array(binding.bind_input, name, array)
        outputs: dict[str, Array] = {
            contract.LOGITS: self._logits[:scored],
            **dict(zip(contract.CHOICE, best, strict=True)),
        }
        outputs |= {contract.present(name): array for name, array in self._targets.items()}
        if wanted != EVERY_HEAD:
            outputs[contract.ALIGNMENTS] = self._alignments[: rows * aligned]
        for name, array in outputs.items():
            bind_array(binding.bind_output, name, array)
        return _BoundStep(binding, best, tuple(constants.values()))


def _allocate(manifest: contract.Manifest, length: contract.Length, tokens: int, slots: int) -> dict[str, Array]:
    """Returns the tensors of a cache by name, [slots, ...]."""
    cache = manifest.cache
    if cache is None:
        raise TypeError(f"{manifest.name}: expected native graphs")
    return {
        name: lazy_zeros((slots, *tensor.shape), np.int8 if tensor.element == "int8" else np.float32)
        for name, tensor in cache.tensors(length, tokens).items()
    }
