"""What the engine needs of a model, whatever computes it.

`serve.runtime.cpu` does on the CPU, `serve.runtime.cuda.runtime` on a device; in tests it is a fake. Knows neither
search nor sequences. Used by `serve.engine.engine` and by whoever hands it a model.

What a step says of the next tokens, wherever its logits lie: asked a few questions, it answers with small arrays.

`Scores` is what selection needs of a step. `HostScores` is the step of a model that computes in this machine's memory;
on a device it is `serve.runtime.cuda.runtime`, which keeps the logits there. Knows neither rows nor options.

Shapes: R rows of the step, M some of them, V vocabulary.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serve.search.sampling import greedy, token_scores

# Log-probabilities of more would not stay in the caches of a CPU until they are read, and take memory for all of them.
SCORED_LOGITS = 2**19


class Scores(Protocol):
    """The logits of R rows, valid until the next step.

    Rows are asked for by their numbers, int64 [M], ascending.
    """

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns logits that may be read and changed, float32 [R, V]; only the given rows hold anything."""

    def store(self, rows: NDArray[np.int64]) -> None:
        """Makes the changes count that were made to some fetched rows."""

    def greedy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the most probable token of each row, int64 [M]; the smallest id wins a tie."""

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the natural log-probability of one token of each row, float32 [M]; NaN if the row has none."""

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Finds the `count` most probable tokens of each row, or all of a smaller vocabulary.

        Returns:
            their natural log-probabilities, float32 [M, count], best first, and token ids, int64 [M, count]; the lower
            id comes first in a tie. The caller may change both.
        """


class Probabilities(Protocol):
    """What makes probabilities of logits in this machine's memory."""

    def log_probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns natural log-probabilities of rows of logits, both float32 [M, V].

        A row with NaN, with +inf or with nothing but -inf becomes NaN.
        """

    def best(self, scores: NDArray[np.float32], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best C scores of each row, float32 [M, C], best first, and their tokens, int64 [M, C]."""


class HostScores:
    """Logits in this machine's memory."""

    def __init__(self, logits: NDArray[np.float32], model: Probabilities) -> None:
        """Computes nothing yet.

        Args:
            logits: float32 [R, V]; changed in place.
            model: makes probabilities of them.
        """
        self._logits = logits
        self._model = model

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:  # noqa: ARG002 - they are all here
        """Returns the logits themselves."""
        return self._logits

    def store(self, rows: NDArray[np.int64]) -> None:
        """Has nothing to do: what was fetched are the logits themselves."""

    def greedy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the most probable tokens."""
        return greedy(self._of(rows))

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns log-probabilities of tokens, a few rows at a time."""
        scores = np.empty(len(rows), np.float32)
        for part in self._parts(rows):
            scores[part] = token_scores(self._log_probabilities(rows[part]), token_ids[part])
        return scores

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best tokens, a few rows at a time."""
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
        """Returns logits of rows, at least one, without a copy if they lie side by side."""
        first, end = int(rows[0]), int(rows[-1]) + 1
        return self._logits[first:end] if end - first == len(rows) else self._logits[rows]


class Model(Protocol):
    """What the engine needs of a model: a few computations, and rows that can be copied.

    A row is a place in the model's state; the running rows are always 0 to R - 1. B sources, A alignment heads, S most
    source tokens.
    """

    @property
    def slots(self) -> int:
        """The most running rows."""

    @property
    def prefetched(self) -> int:
        """Further rows, behind those, for what is encoded before there is a slot for it."""

    @property
    def alignments(self) -> NDArray[np.float32]:
        """Where each row looked in the last step, float32 [slots, A, S]; A is 0 if the model does not tell."""

    def encode(self, source_ids: NDArray[np.int64], source_lengths: NDArray[np.int32], rows: NDArray[np.int64]) -> None:
        """Encodes sources and keeps what the decoder needs of each in its row.

        Args:
            source_ids: int64 [B, S], padded on the right.
            source_lengths: int32 [B], source tokens without padding.
            rows: int64 [B].
        """

    def prepare(self) -> None:
        """Gets ready for steps, once, in the thread that will make them; what it takes its time for is done then."""

    def step(
        self,
        token_ids: NDArray[np.int64],
        positions: NDArray[np.int32],
        source_lengths: NDArray[np.int32],
        *,
        occupied: int = 0,
    ) -> Scores:
        """Computes one step of rows 0 to R - 1 and moves their state on by it.

        Args:
            token_ids: int64 [R], the last token of each row.
            positions: int32 [R], its position; the row has read that many tokens already.
            source_lengths: int32 [R].
            occupied: rows that hold anything, if more than R; those behind hold nothing any more. Their sources are no
                longer than the longest of the R, except behind `slots`.

        Returns:
            what it says of the next tokens, valid until the next call.
        """

    def branch_rows(self, sources: Sequence[int], targets: Sequence[int], positions: Sequence[int]) -> None:
        """Copies rows over others of the same source, `positions` tokens of each; no row is a source and a target."""

    def copy_rows(
        self,
        sources: Sequence[int],
        targets: Sequence[int],
        positions: Sequence[int],
        source_lengths: Sequence[int],
    ) -> None:
        """Copies the states of rows over those of others.

        Args:
            sources: the rows to copy.
            targets: the rows to overwrite, all different; none of them is a source.
            positions: tokens that each row has read.
            source_lengths: source tokens of each row.
        """
