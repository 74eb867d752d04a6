"""Runs native graphs on the CPU: sessions that all engines share, and one runtime with its own caches per engine.

A step names the slots of each row. Target slots are the rows; source slots are counted, so that the hypotheses of a
beam read the same one. Caches are bound in place: only written pages take memory, and nothing is copied.

The decoder returns the best tokens of every row. It returns logits only of rows that the search changes or samples
from; `Choose` finds the best tokens of changed logits.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from serve.bundle.bundle import Bundle
from serve.bundle.manifest import (
    ALIGNMENTS,
    CACHE_BLOCK_TOKENS,
    CHOICE,
    CHOOSE_INPUTS,
    ENCODE_INPUTS,
    LOGITS,
    STEP_INPUTS,
    Length,
    Manifest,
    present,
)
from serve.runtime.cpu import ENCODED_TOKENS, SharedWeights
from serve.runtime.lazy_memory import lazy_zeros
from serve.runtime.model import NO_ROWS
from serve.runtime.onnx_runtime import open_session, shared_options

Array = NDArray[Any]
# Most bindings that a runtime keeps; there may be one for each number of rows, of scored rows and of best tokens.
MOST_BINDINGS = 512


@dataclass(frozen=True, slots=True)
class NativeSessions:
    """The sessions of a bundle with native graphs. Running them is thread-safe.

    Attributes:
        aligned: whether steps can return alignments.
    """

    manifest: Manifest
    encoder: Any
    decoder: Any
    choose: Any
    aligned: bool
    weights: SharedWeights

    @classmethod
    def load(cls, bundle: Bundle, threads: int, *, aligned: bool = False, profile_prefix: Path | None = None) -> Self:
        """Opens the graphs of a bundle; see `serve.runtime.cpu.Sessions.load`.

        Raises:
            BundleError: if ONNX Runtime rejects a graph.
        """
        weights = SharedWeights.of(bundle)
        decoder_options = shared_options(threads, weights.decoder)
        if profile_prefix is not None:
            decoder_options.enable_profiling = True
            decoder_options.profile_file_prefix = str(profile_prefix)
        return cls(
            bundle.manifest,
            encoder=open_session(bundle.encoder_path, shared_options(threads, weights.encoder)),
            decoder=open_session(bundle.decoder_path, decoder_options),
            choose=open_session(bundle.choose_path, shared_options(threads, {})),
            aligned=aligned,
            weights=weights,
        )

    def runtime(self, slots: int, prefetched: int = 0) -> "NativeRuntime":
        """Returns a runtime with its own state; see `NativeRuntime`."""
        return NativeRuntime(self, slots, prefetched)


class Best(NamedTuple):
    """The best tokens of some rows, best first.

    Attributes:
        log_sums: logarithm of the sum of the exponentials of a row's logits, float32 [R].
        scores: natural log-probabilities, logit - log_sum, float32 [R, C].
        token_ids: int64 [R, C].
    """

    log_sums: NDArray[np.float32]
    scores: NDArray[np.float32]
    token_ids: NDArray[np.int64]


class NativeScores:
    """`serve.runtime.model.Scores` of one step. Logits are known of the rows that the step was asked for."""

    def __init__(
        self, best: Best, logits: NDArray[np.float32], choose: Callable[[NDArray[np.float32], int], Best]
    ) -> None:
        """Stores the best tokens of R rows and logits, float32 [R, V]."""
        self._best = best
        self._logits = logits
        self._choose = choose

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:  # noqa: ARG002 - the step returned them
        """Returns the logits themselves."""
        return self._logits

    def store(self, rows: NDArray[np.int64]) -> None:
        """Finds the best tokens of rows whose logits have changed."""
        if len(rows):
            chosen = self._choose(self._logits[rows], self._best.scores.shape[1])
            self._best.log_sums[rows] = chosen.log_sums
            self._best.scores[rows] = chosen.scores
            self._best.token_ids[rows] = chosen.token_ids

    def greedy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the most probable tokens."""
        return np.asarray(self._best.token_ids[rows, 0])

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the log-probabilities of tokens: the best ones, or those of rows with logits."""
        scores = np.asarray(self._best.scores[rows, 0])
        others = np.flatnonzero(token_ids != self._best.token_ids[rows, 0])
        if len(others):
            chosen = rows[others]
            scores[others] = self._logits[chosen, token_ids[others]] - self._best.log_sums[chosen]
        return scores

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best tokens, at most as many as the step was asked for."""
        return self._best.scores[rows, :count], self._best.token_ids[rows, :count]


class _BoundStep(NamedTuple):
    """The decoder bound for R rows, M of them with logits, and C best tokens of each, with the memory of the latter."""

    binding: Any
    best: Best
    kept: tuple[Array, ...]


class NativeRuntime:
    """What one engine computes with: the shared sessions and its own caches. Not thread-safe."""

    def __init__(self, sessions: NativeSessions, slots: int, prefetched: int = 0) -> None:
        """Allocates the caches of `slots` rows of steps and `prefetched` rows behind them."""
        manifest = sessions.manifest
        self.slots = slots
        self.prefetched = prefetched
        self._sessions = sessions
        self._vocabulary_size = manifest.vocabulary_size
        self._longest_source = manifest.max_source_tokens
        rows = slots + prefetched
        self._targets = _allocate(manifest, "target", manifest.max_target_tokens, slots)
        self._sources = _allocate(manifest, "source", manifest.max_source_tokens, rows)
        self._source_slots = SourceSlots(rows)
        self._inputs = {name: np.zeros(slots, np.int64 if name == "token_ids" else np.int32) for name in STEP_INPUTS}
        self._inputs["target_slots"][:] = np.arange(slots)
        self._logits = lazy_zeros((slots, self._vocabulary_size), np.float32)
        capacity = next(iter(self._sources.values())).shape[2] * CACHE_BLOCK_TOKENS
        self._alignments = lazy_zeros((slots, len(manifest.alignment_heads), capacity), np.float32)
        self._bound: dict[tuple[int, int, int, bool], _BoundStep] = {}
        self._encoding = sessions.encoder.io_binding()
        for name, array in self._sources.items():
            _bind(self._encoding.bind_input, name, array)
            _bind(self._encoding.bind_output, present(name), array)

    def prepare(self) -> None:
        """Does nothing: the first step needs no preparation."""

    @property
    def alignments(self) -> NDArray[np.float32]:
        """Attention weights of A alignment heads in the last step, float32 [slots, A, S].

        Valid for the rows of that step if it was aligned. A is 0 if the sessions are not aligned.
        """
        heads = self._alignments.shape[1] if self._sessions.aligned else 0
        return self._alignments[:, :heads, : self._longest_source]

    def encode(self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Encodes B sources, a few at a time; see `Model.encode`."""
        slots = np.array([self._source_slots.renew(row) for row in rows.tolist()], np.int32)
        few = max(1, ENCODED_TOKENS // source_ids.shape[1])
        for first in range(0, len(rows), few):
            part = slice(first, first + few)
            lengths = source_lengths[part].astype(np.int32)
            valid = np.arange(source_ids.shape[1]) < lengths[:, np.newaxis]
            given: tuple[Array, ...] = source_ids[part][valid], lengths, slots[part]
            for name, array in zip(ENCODE_INPUTS, given, strict=True):
                _bind(self._encoding.bind_input, name, array)
            self._sessions.encoder.run_with_iobinding(self._encoding)

    def step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,  # noqa: ARG002 - slots do not move
        scored_rows: NDArray[np.int64] = NO_ROWS,
        best_count: int = 1,
        aligned: bool = False,
    ) -> NativeScores:
        """Computes one step; see `Model.step`."""
        rows, scored = len(token_ids), len(scored_rows)
        inputs = self._inputs
        inputs["token_ids"][:rows] = token_ids
        inputs["positions"][:rows] = positions
        inputs["source_slots"][:rows] = self._source_slots.of[:rows]
        inputs["source_lengths"][:rows] = source_lengths
        inputs["scored_rows"][:scored] = scored_rows
        bound = self._bind_step(rows, scored, min(best_count, self._vocabulary_size), aligned)
        self._sessions.decoder.run_with_iobinding(bound.binding)
        # The graph returns logits densely. Rows are ascending, so that none is overwritten before it has moved.
        for place in reversed(np.flatnonzero(scored_rows != np.arange(scored)).tolist()):
            self._logits[scored_rows[place]] = self._logits[place]
        return NativeScores(bound.best, self._logits[:rows], self._choose)

    def copy_rows(
        self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int], source_lengths: Sequence[int]
    ) -> None:
        """Copies rows over others, in order; their sources are not copied but shared."""
        del source_lengths
        self.branch_rows(sources, targets, positions)
        for source, target in zip(sources, targets, strict=True):
            self._source_slots.share(source, target)

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies filled blocks of rows over others of the same source; prefetched rows have none."""
        for source, target, length in zip(sources, targets, positions, strict=True):
            blocks = -(-length // CACHE_BLOCK_TOKENS)
            for array in self._targets.values() if blocks else ():
                array[target, :, :blocks] = array[source, :, :blocks]

    def _choose(self, logits: NDArray[np.float32], count: int) -> Best:
        """Returns the best tokens of M rows of logits, float32 [M, V], bitwise as a step returns them."""
        feeds = dict(zip(CHOOSE_INPUTS, (logits, np.array([count], np.int32)), strict=True))
        return Best(*self._sessions.choose.run(CHOICE, feeds))

    def _bind_step(self, rows: int, scored: int, count: int, aligned: bool) -> _BoundStep:
        """Returns the binding of a step; making one takes longer than the rest of a step's Python code."""
        key = rows, scored, count, aligned
        bound = self._bound.get(key)
        if bound is None:
            if len(self._bound) == MOST_BINDINGS:
                self._bound.clear()
            bound = self._bound[key] = self._make_step(*key)
        return bound

    def _make_step(self, rows: int, scored: int, count: int, aligned: bool) -> _BoundStep:
        binding = self._sessions.decoder.io_binding()
        best = Best(np.zeros(rows, np.float32), np.zeros((rows, count), np.float32), np.zeros((rows, count), np.int64))
        constants = {"best_count": np.array([count], np.int32), "aligned": np.array([aligned], np.int32)}
        inputs: dict[str, Array] = {name: array[:rows] for name, array in self._inputs.items()}
        inputs |= {"scored_rows": self._inputs["scored_rows"][:scored], **constants, **self._targets, **self._sources}
        for name, array in inputs.items():
            _bind(binding.bind_input, name, array)
        outputs: dict[str, Array] = {LOGITS: self._logits[:scored], **dict(zip(CHOICE, best, strict=True))}
        outputs[ALIGNMENTS] = self._alignments[: rows * aligned]
        outputs |= {present(name): array for name, array in self._targets.items()}
        for name, array in outputs.items():
            _bind(binding.bind_output, name, array)
        return _BoundStep(binding, best, tuple(constants.values()))


class SourceSlots:
    """The source slot of each row.

    Attributes:
        of: int32 [rows].
    """

    def __init__(self, rows: int) -> None:
        self.of = np.arange(rows, dtype=np.int32)
        self._readers = Counter(self.of.tolist())

    def renew(self, row: int) -> int:
        """Gives a row a slot that no other row reads; there is one, since there are as many slots as rows."""
        slot = int(self.of[row])
        if self._readers[slot] > 1:
            self._readers[slot] -= 1
            slot = next(each for each, readers in self._readers.items() if not readers)
            self._readers[slot] = 1
            self.of[row] = slot
        return slot

    def share(self, source: int, target: int) -> None:
        """Lets the target row read the slot of the source row."""
        self._readers[int(self.of[target])] -= 1
        self.of[target] = self.of[source]
        self._readers[int(self.of[source])] += 1


def _allocate(manifest: Manifest, length: Length, tokens: int, slots: int) -> dict[str, Array]:
    """Returns the tensors of a cache by name, [slots, ...]."""
    cache = manifest.cache
    if cache is None:
        raise TypeError(f"{manifest.name}: expected native graphs")
    values, *scales = cache.shapes(length, tokens).items()
    kind = np.int8 if cache.element == "int8" else np.float32
    arrays = {values[0]: lazy_zeros((slots, *values[1]), kind)}
    return arrays | {name: lazy_zeros((slots, *shape), np.float32) for name, shape in scales}


def _bind(bind: Callable[..., None], name: str, array: Array) -> None:
    bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
