"""One step of beam search for many sequences at once: pure NumPy functions.

`expand` ranks the candidates, `ended` marks the finished hypotheses, `survivors` selects the next beam, and `place`
assigns rows so that few states are copied. The caller ranks finished hypotheses and decides when a search ends. The
semantics are those of the beam search in training.

Shapes: B sequences of any lengths, all with K hypotheses. A rank is an index into the hypotheses, best first. A
hypothesis with score -inf does not exist. It is kept because a sequence always owns K rows.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64] | tuple[slice | NDArray[np.int64], ...]


class Candidates(NamedTuple):
    """One-token expansions of each sequence's hypotheses, best first: C = 2K candidates, or the C = K that survive.

    At most K of the 2K end, one per hypothesis, so at least K remain to fill the beam.

    Attributes:
        scores: float64 [B, C], sum of the log-probabilities of all tokens; -inf: does not exist.
        origins: rank of the expanded hypothesis, int64 [B, C].
        token_ids: the added token, int64 [B, C].
        token_scores: natural log-probability of that token, float32 [B, C].
    """

    scores: NDArray[np.float64]
    origins: NDArray[np.int64]
    token_ids: NDArray[np.int64]
    token_scores: NDArray[np.float32]

    def at(self, index: Index) -> "Candidates":
        """Applies an index to every array."""
        return Candidates(self.scores[index], self.origins[index], self.token_ids[index], self.token_scores[index])


class Placement(NamedTuple):
    """The rows of hypotheses after a step. No row is both source and target: copies may happen in any order.

    Attributes:
        rows: row of each rank's hypothesis, int64 [B, K]: a permutation of the sequence's rows.
        sources: rows whose state must be copied, int64 [N]; may repeat.
        targets: rows to copy them to, int64 [N], all different.
    """

    rows: NDArray[np.int64]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]


def expand(
    scores: NDArray[np.float64], log_probabilities: NDArray[np.float32], token_ids: NDArray[np.int64]
) -> Candidates:
    """Returns the best 2K candidates. Ties go to the better hypothesis, then to the earlier token of its row.

    The best 2K of all rows are among the best 2K of each row, so these suffice as input.

    Args:
        scores: float64 [B, K]; -inf: the hypothesis and its expansions do not exist.
        log_probabilities: of the best C tokens of each row, best first, ties by lower id; float32 [B, K, C] with C =
            2K, or the vocabulary size if that is smaller; at least 2.
        token_ids: these tokens, int64 [B, K, C].
    """
    sequences, beam_size, per_row = log_probabilities.shape
    live = (scores != -np.inf)[:, :, np.newaxis]
    sums = np.where(live, scores[:, :, np.newaxis] + log_probabilities, -np.inf).reshape(sequences, -1)  # [B, K * C]
    best = np.argsort(-sums, axis=1, kind="stable")[:, : 2 * beam_size]  # [B, 2K]
    each = _each(sequences)
    return Candidates(
        sums[each, best],
        best // per_row,
        token_ids.reshape(sequences, -1)[each, best],
        log_probabilities.reshape(sequences, -1)[each, best],
    )


def broken(scores: NDArray[np.float64], log_probabilities: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Returns bool [B]: True for sequences with a NaN in a hypothesis that exists; `expand` is meaningless for them.

    Args:
        scores: float64 [B, K].
        log_probabilities: float32 [B, K, C].
    """
    unknown = np.isnan(log_probabilities)
    if not unknown.any():
        return np.zeros(len(scores), np.bool_)
    failed = unknown.any(axis=2) & (scores != -np.inf)  # [B, K]
    any_failed: NDArray[np.bool_] = failed.any(axis=1)
    return any_failed


def ended(candidates: Candidates, eos_id: int) -> NDArray[np.bool_]:
    """Returns bool [B, 2K]: True for end tokens among the first K candidates, which finish their hypotheses.

    A later end token finishes nothing: its hypothesis is no longer among the best K.
    """
    finishing: NDArray[np.bool_] = (candidates.token_ids == eos_id) & (candidates.scores != -np.inf)
    finishing[:, finishing.shape[1] // 2 :] = False
    return finishing


def survivors(candidates: Candidates, eos_id: int) -> Candidates:
    """Returns the first K candidates that do not end: the next beam."""
    beam_size = candidates.token_ids.shape[1] // 2
    ending = candidates.token_ids == eos_id
    if not ending[:, :beam_size].any():
        return candidates.at((slice(None), slice(beam_size)))
    # A stable sort of booleans puts the candidates that do not end first and keeps their order.
    first = np.argsort(ending, axis=1, kind="stable")[:, :beam_size]
    return candidates.at((_each(len(first)), first))


def place(rows: NDArray[np.int64], origins: NDArray[np.int64]) -> Placement:
    """Assigns rows to hypotheses with the fewest copies of states.

    The first hypothesis of an origin keeps its row. Each further one takes a row without a successor. K hypotheses live
    in K rows, so there are as many of one as of the other.

    Args:
        rows: row of each rank's hypothesis before the step, int64 [B, K], all different.
        origins: rank before the step of the hypothesis that each one continues, int64 [B, K].
    """
    beam_size = rows.shape[1]
    same = origins[:, :, np.newaxis] == origins[:, np.newaxis, :]  # [B, K, K]
    further = (same & _earlier(beam_size)).any(axis=2)  # [B, K]: an earlier rank has the same origin
    free = ~(origins[:, np.newaxis, :] == np.arange(beam_size)[:, np.newaxis]).any(axis=2)  # [B, K]
    origin_rows = rows[_each(len(rows)), origins]
    # Boolean indexing reads row by row, and in each row both masks have the same count: sources and targets align.
    sources, targets = origin_rows[further], rows[free]
    placed = origin_rows.copy()
    placed[further] = targets
    return Placement(placed, sources, targets)


@lru_cache
def _earlier(beam_size: int) -> NDArray[np.bool_]:
    """Returns bool [K, K]: [i, j] is True if j < i."""
    return np.tri(beam_size, k=-1, dtype=np.bool_)


def _each(sequences: int) -> NDArray[np.int64]:
    """Returns the row index for fancy indexing, int64 [B, 1]; several times faster than take_along_axis."""
    return np.arange(sequences)[:, np.newaxis]
