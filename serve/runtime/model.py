"""The model as the engine sees it: `Model` and the `Scores` of a step, independent of the device.

A row is an index into the model's state. A hypothesis keeps its row as long as it lives.

Shapes: R rows of the step, M some of them, V vocabulary.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

NO_ROWS = np.zeros(0, np.int64)


class Scores(Protocol):
    """The logits of the rows of a step, valid until the next one. Rows are given by number, int64 [M]."""

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns a copy of the logits of scored rows, float32 [M, V]."""

    def store(self, rows: NDArray[np.int64], logits: NDArray[np.float32]) -> None:
        """Replaces the logits of scored rows, float32 [M, V]."""

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the natural log-probability of one token per scored row, float32 [M]; NaN if the row has none."""

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns log-probabilities, float32 [M, count], best first, ties by lower id, and ids, int64 [M, count]."""


class Model(Protocol):
    """What the engine requires of a model. B sources, A alignment heads, S source tokens of the longest source."""

    @property
    def slots(self) -> int:
        """The number of rows."""

    @property
    def alignments(self) -> NDArray[np.float32]:
        """Attention weights of the rows of the last aligned step, float32 [slots, A, S]; A is 0 without alignments."""

    def encode(
        self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: Sequence[Sequence[int]]
    ) -> None:
        """Encodes B right-padded sources, int64 [B, S], with lengths without padding, int32 [B].

        `rows` are those of each source. No others use its encoding, and they do so until they get another source.
        """

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
    ) -> Scores:
        """Computes one step of R rows and advances their state. The target states of the other rows are lost.

        `rows` and the last token of each are int64 [R]. Its position is the number of tokens that the row has read
        already; positions and lengths are int32 [R]. `scored_rows`, int64 [M], in the order of `rows`, are those of
        which `Scores` needs all logits; `best_count` is the most tokens that `Scores.best` may return. Returns scores
        of the next tokens, valid until the next call.
        """

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies rows over others of the same source, `positions` tokens each; no row is both source and target."""
