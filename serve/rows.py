"""The running rows of one engine: who they belong to and how far they are, as a dense prefix of preallocated arrays.

Row r is the r-th running sequence and lives in slot r of the model's state. Only rows that come or go are handled one
by one. Knows neither the model nor the scheduler; called by the engine.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from serve.hypothesis import Hypothesis
from serve.request import FinishReason
from serve.search import GreedyStep
from serve.sequence import Sequence


class Move(NamedTuple):
    """A row that takes the place of one that left, and how much of its state is valid."""

    source: int
    target: int
    positions: int
    source_length: int


class Rows:
    """The state of greedy search for R running rows, 0 <= R <= slots."""

    def __init__(self, slots: int, max_target_tokens: int, bos_id: int, eos_id: int) -> None:
        """Starts with no row.

        Args:
            slots: the most rows.
            max_target_tokens: the longest translation of any row, the end token excluded.
            bos_id: the token that every translation starts from.
            eos_id: the token that ends a translation and is no part of it.
        """
        self._bos_id = bos_id
        self._eos_id = eos_id
        self._sequences: list[Sequence] = []
        self._token_ids = np.zeros(slots, np.int64)
        self._positions = np.zeros(slots, np.int32)
        self._source_lengths = np.zeros(slots, np.int32)
        self._scores = np.zeros(slots, np.float64)
        self._limits = np.zeros(slots, np.int32)
        self._deadlines_seconds = np.zeros(slots, np.float64)
        self._target_ids = np.zeros((slots, max_target_tokens), np.int64)

    def __len__(self) -> int:
        return len(self._sequences)

    @property
    def token_ids(self) -> NDArray[np.int64]:
        """int64 [R]: the last token of each row, the input of the next step."""
        return self._token_ids[: len(self)]

    @property
    def positions(self) -> NDArray[np.int32]:
        """int32 [R]: the position of that token, which is also the number of target tokens so far."""
        return self._positions[: len(self)]

    @property
    def source_lengths(self) -> NDArray[np.int32]:
        """int32 [R]: the number of source tokens."""
        return self._source_lengths[: len(self)]

    def append(self, sequences: list[Sequence]) -> None:
        """Adds a row for each sequence behind the running ones."""
        new = slice(len(self), len(self) + len(sequences))
        self._token_ids[new] = self._bos_id
        self._positions[new] = 0
        self._source_lengths[new] = [len(sequence.source_ids) for sequence in sequences]
        self._scores[new] = 0.0
        self._limits[new] = [sequence.options.max_target_tokens for sequence in sequences]
        deadlines_seconds = (sequence.deadline_seconds for sequence in sequences)
        self._deadlines_seconds[new] = [np.inf if seconds is None else seconds for seconds in deadlines_seconds]
        self._sequences.extend(sequences)

    def record(self, step: GreedyStep) -> NDArray[np.bool_]:
        """Writes down the chosen token of each row.

        Returns:
            bool [R]: True for the rows whose translation is over: the end token was chosen, the limit is reached (with
            `max_target_tokens` tokens there is no further step to see whether the end token would follow), or the
            score is NaN.
        """
        ended = step.token_ids == self._eos_id
        self._target_ids[np.arange(len(self)), self.positions] = step.token_ids
        self._token_ids[: len(self)] = step.token_ids
        self._positions[: len(self)] += ~ended
        self._scores[: len(self)] += step.scores
        over: NDArray[np.bool_] = ended | (self.positions == self._limits[: len(self)])
        return over | np.isnan(self._scores[: len(self)])

    def abandoned(self, now_seconds: float) -> NDArray[np.bool_]:
        """Returns bool [R]: True for the rows that nobody waits for any more (as `Sequence.abandonment` tells why)."""
        cancelled = np.fromiter((sequence.cancelled for sequence in self._sequences), np.bool_, len(self))
        return cancelled | (self._deadlines_seconds[: len(self)] <= now_seconds)

    def moves(self, leaving: NDArray[np.bool_]) -> list[Move]:
        """Returns the fewest moves that keep the rows dense: the last that stay take the places of those that leave.

        Args:
            leaving: bool [R].
        """
        sources, targets = _gaps(leaving)
        return [
            Move(source, target, int(self._positions[source]), int(self._source_lengths[source]))
            for source, target in zip(sources.tolist(), targets.tolist(), strict=True)
        ]

    def remove(self, leaving: NDArray[np.bool_]) -> list[Sequence]:
        """Takes rows out and makes the moves that `moves` tells, which the model must have made before.

        Args:
            leaving: bool [R].

        Returns:
            the sequences that left, with their hypotheses.
        """
        left = [self._take(row) for row in np.flatnonzero(leaving).tolist()]
        sources, targets = _gaps(leaving)
        for column in (
            self._token_ids,
            self._positions,
            self._source_lengths,
            self._scores,
            self._limits,
            self._deadlines_seconds,
            self._target_ids,
        ):
            column[targets] = column[sources]
        for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
            self._sequences[target] = self._sequences[source]
        del self._sequences[len(self) - len(left) :]
        return left

    def _take(self, row: int) -> Sequence:
        sequence = self._sequences[row]
        length, score = int(self._positions[row]), float(self._scores[row])
        complete = length == sequence.options.max_target_tokens
        reason = FinishReason.LENGTH if complete else FinishReason.EOS
        target_ids = tuple(self._target_ids[row, :length].tolist())
        sequence.hypotheses = (Hypothesis(target_ids, score, score, reason, ()),)
        sequence.decoded_tokens = length
        return sequence


def _gaps(leaving: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the rows to move and the gaps that they go to, int64 [M] each, ascending."""
    kept = len(leaving) - int(leaving.sum())
    return kept + np.flatnonzero(~leaving[kept:]), np.flatnonzero(leaving[:kept])
