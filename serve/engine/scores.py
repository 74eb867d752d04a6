"""What a step says of the next tokens, wherever its logits lie: asked a few questions, it answers with small arrays.

`Scores` is what selection needs of a step. `HostScores` is the step of a model that computes in this machine's memory;
on a device it is `serve.device.device_scores`, which keeps the logits there. Knows neither rows nor options.

Shapes: R rows of the step, M some of them, V vocabulary.
"""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from serve.search.greedy import greedy, token_scores


class Scores(Protocol):
    """The logits of R rows, valid until the next step.

    Rows are asked for by their numbers, int64 [M], all different; who asks for all of them names them in their order.
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
        self._known: NDArray[np.float32] | None = None

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:  # noqa: ARG002 - they are all here
        """Returns the logits themselves."""
        return self._logits

    def store(self, rows: NDArray[np.int64]) -> None:  # noqa: ARG002
        """Forgets the probabilities of what the logits were before."""
        self._known = None

    def greedy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the most probable tokens."""
        return greedy(_of_rows(self._logits, rows))

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns log-probabilities of tokens."""
        return token_scores(_of_rows(self._log_probabilities, rows), token_ids)

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best tokens."""
        return self._model.best(_of_rows(self._log_probabilities, rows), min(count, self._logits.shape[1]))

    @property
    def _log_probabilities(self) -> NDArray[np.float32]:
        """Of all rows, float32 [R, V]."""
        if self._known is None:
            self._known = self._model.log_probabilities(self._logits)
        return self._known


def _of_rows(values: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns rows of values, without a copy if they are all of them."""
    return values if len(rows) == len(values) else values[rows]
