"""What a step says of the next tokens while its logits stay on the device: what crosses is a few numbers of each row.

Whole logits come over only for rows that constraints change or that draw, and go back once they are changed. See
`serve.runtime.scores`, whose `HostScores` answers the same questions.

Shapes: R rows of the step, padded to P of its bucket, M some of them, V vocabulary.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.runtime.cuda.device import View
from serve.runtime.cuda.device_tools import DeviceTools


class Chosen(NamedTuple):
    """The best token of each row, int64 [P], and its log-probability, float32 [P]."""

    token_ids: NDArray[np.int64]
    scores: NDArray[np.float32]


class DeviceScores:
    """The logits of one step on a device."""

    def __init__(
        self, tools: DeviceTools, logits: View, log_probabilities: View, host_logits: NDArray[np.float32]
    ) -> None:
        """Computes nothing yet.

        Args:
            tools: of the device.
            logits: float [P, V].
            log_probabilities: where those of the logits may be written, float [P, V].
            host_logits: where fetched rows may be written, float32 [R, V].
        """
        self._tools = tools
        self._logits = logits
        self._log_probabilities = log_probabilities
        self._host_logits = host_logits
        self._known: Chosen | None = None

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Copies the logits of some rows into this machine's memory."""
        self._host_logits[rows] = self._tools.fetch(self._logits, rows)
        return self._host_logits

    def store(self, rows: NDArray[np.int64]) -> None:
        """Copies fetched rows back."""
        self._tools.copy(self._host_logits[rows], self._logits, np.arange(len(rows)), rows)
        self._known = None

    def greedy(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the most probable tokens."""
        return self._chosen.token_ids[rows]

    def of(self, rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns log-probabilities of tokens; only those of tokens that are not the best have to be fetched."""
        chosen = self._chosen
        if (chosen.token_ids[rows] == token_ids).all():
            return chosen.scores[rows]
        wanted = chosen.token_ids.copy()
        wanted[rows] = token_ids
        return self._tools.scores_of(self._log_probabilities, wanted)[rows]

    def best(self, rows: NDArray[np.int64], count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Returns the best tokens. They are found for every row, so that no shape depends on who asks."""
        assert self._chosen is not None  # noqa: S101 - it makes the log-probabilities
        scores, token_ids = self._tools.best(self._log_probabilities, min(count, self._logits.shape[1]))
        return scores[rows], token_ids[rows]

    @property
    def _chosen(self) -> Chosen:
        if self._known is None:
            last_id = np.array([[self._logits.shape[1] - 1]])
            self._known = Chosen(*self._tools.choose_tokens(self._logits, last_id, self._log_probabilities))
        return self._known
