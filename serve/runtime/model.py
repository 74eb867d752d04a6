"""The model as the engine sees it: `Model` and the `Scores` of a step, independent of the device.

`HostScores` implements `Scores` in host memory; `serve.runtime.cuda.runtime` keeps the logits on the device.

Shapes: R rows of the step, M some of them, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serve.search.sampling import greedy, token_scores

NO_ROWS = np.zeros(0, np.int64)
# More log-probabilities would leave the CPU's caches before they are read, and take memory for all of them.
SCORED_LOGITS = 2**19


class Scores(Protocol):
    """The logits of R rows, valid until the next step. Rows are given by number, int64 [M], ascending."""

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns writable logits, float32 [R, V]; only the given rows, scored ones of the step, are defined."""

    def store(self, rows: NDArray[np.int64]) -> None:
        """Applies changes that were made to fetched rows."""

    def greedy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the most probable token of each row, int64 [M]; ties go to the smallest id."""

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the natural log-probability of one token per row, float32 [M]; NaN if the row has none.

        Rows are scored ones of the step, or the tokens are the most probable ones.
        """

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the `count` most probable tokens of each row, or the whole vocabulary if it is smaller.

        Returns:
            natural log-probabilities, float32 [M, count], best first, ties by lower id, and token ids, int64 [M,
            count]. The caller may change both arrays.
        """


class Probabilities(Protocol):
    """Computes probabilities from logits in host memory."""

    def log_probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns natural log-probabilities of rows of logits, both float32 [M, V].

        A row with NaN, with +inf or with only -inf becomes NaN.
        """

    def best(self, scores: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best C scores of each row, float32 [M, C], best first, and their token ids, int64 [M, C]."""


class HostScores:
    """`Scores` in host memory."""

    def __init__(self, logits: NDArray[np.float32], model: Probabilities) -> None:
        """Stores the logits, float32 [R, V], which `fetch` exposes to changes in place."""
        self._logits = logits
        self._model = model

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:  # noqa: ARG002 - all rows are on the host
        """Returns the logits themselves."""
        return self._logits

    def store(self, rows: NDArray[np.int64]) -> None:
        """Does nothing: `fetch` returned the logits themselves."""

    def greedy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the most probable tokens."""
        return greedy(self._of(rows))

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns log-probabilities of tokens, computed a few rows at a time."""
        scores = np.empty(len(rows), np.float32)
        for part in self._parts(rows):
            scores[part] = token_scores(self._log_probabilities(rows[part]), token_ids[part])
        return scores

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best tokens, computed a few rows at a time."""
        count = min(count, self._logits.shape[1])
        scores, token_ids = np.empty((len(rows), count), np.float32), np.empty((len(rows), count), np.int64)
        for part in self._parts(rows):
            scores[part], token_ids[part] = self._model.best(self._log_probabilities(rows[part]), count)
        return scores, token_ids

    def _parts(self, rows: NDArray[np.int64]) -> Iterator[slice]:
        few = max(1, SCORED_LOGITS // self._logits.shape[1])
        return (slice(first, first + few) for first in range(0, len(rows), few))

    def _log_probabilities(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self._model.log_probabilities(self._of(rows))

    def _of(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns logits of rows, at least one; contiguous rows are not copied."""
        first, end = int(rows[0]), int(rows[-1]) + 1
        return self._logits[first:end] if end - first == len(rows) else self._logits[rows]


class Model(Protocol):
    """What the engine requires of a model.

    A row is a place in the model's state; the running rows are always 0 to R - 1. B sources, A alignment heads, S
    source tokens of the longest source.
    """

    @property
    def slots(self) -> int:
        """The most running rows."""

    @property
    def prefetched(self) -> int:
        """Further rows behind the slots, for sources that are encoded before a slot is free."""

    @property
    def alignments(self) -> NDArray[np.float32]:
        """Attention weights of each row in the last aligned step, float32 [slots, A, S]; A is 0 without alignments."""

    def encode(self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Encodes B sources and writes the decoder's inputs to their rows.

        Args:
            source_ids: int64 [B, S], right-padded.
            source_lengths: int32 [B], source tokens without padding.
            rows: int64 [B].
        """

    def prepare(self) -> None:
        """Does slow preparation once, in the thread that will run the steps."""

    def step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
        scored_rows: NDArray[np.int64] = NO_ROWS,
        best_count: int = 1,
        aligned: bool = False,
    ) -> Scores:
        """Computes one step of rows 0 to R - 1 and advances their state.

        Args:
            token_ids: int64 [R], the last token of each row.
            positions: int32 [R], its position, which is the number of tokens that the row has read already.
            source_lengths: int32 [R].
            occupied: occupied rows, if more than R; the state behind them is lost. Except behind `slots`, their sources
                are no longer than the longest of the R rows.
            scored_rows: int64 [M], ascending: rows of which `Scores` needs all logits.
            best_count: the most tokens that `Scores.best` may return.
            aligned: whether to compute alignments.

        Returns:
            scores of the next tokens, valid until the next call.
        """

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies rows over others of the same source, `positions` tokens each; no row is both source and target."""

    def copy_rows(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        positions: Sequence[int],
        source_lengths: Sequence[int],
    ) -> None:
        """Copies rows over others: `positions` target tokens and `source_lengths` source tokens of each.

        All targets are different, and none of them is a source.
        """
