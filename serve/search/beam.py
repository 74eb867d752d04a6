"""One step of beam search for many sequences at once: pure NumPy functions, applied one after the other.

`expand` ranks what the hypotheses can become, `ended` tells which of that is finished, `survivors` what is searched on,
`place` which rows the model's state must be copied between. How many finished hypotheses are enough, and their ranking,
are the caller's, the engine. The semantics are those of training's beam search.

Shapes: B sequences, all with K hypotheses, of any lengths; best first, where a rank is a place in that order.
A hypothesis with score -inf does not exist; it is carried along because a sequence always owns K rows.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64] | tuple[slice | NDArray[np.int64], ...]


class Candidates(NamedTuple):
    """Expansions of each sequence's hypotheses by one token, best first: the best C = 2K, or those that live on, C = K.

    At most K of the former end, one for each hypothesis: the others suffice to fill the beam.

    Attributes:
        scores: float64 [B, C], sum of the log-probabilities of all tokens; -inf: does not exist.
        origins: rank of the hypothesis that each expands, int64 [B, C].
        token_ids: the token that it adds, int64 [B, C].
        token_scores: natural log-probability of that token, float32 [B, C].
    """

    scores: NDArray[np.float64]
    origins: NDArray[np.int64]
    token_ids: NDArray[np.int64]
    token_scores: NDArray[np.float32]

    def at(self, index: Index) -> "Candidates":
        """Returns what an index takes from every array."""
        return Candidates(self.scores[index], self.origins[index], self.token_ids[index], self.token_scores[index])


class Placement(NamedTuple):
    """Where the hypotheses after a step live. No row is both a source and a target: copies may happen in any order.

    Attributes:
        rows: row of the hypothesis of each rank, int64 [B, K]: those that the sequence had before, in another order.
        sources: rows whose state must be copied, int64 [N]; a row may occur several times.
        targets: the row that each is copied to, int64 [N], all different.
    """

    rows: NDArray[np.int64]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]


def expand(
    scores: NDArray[np.float64], log_probabilities: NDArray[np.float32], token_ids: NDArray[np.int64]
) -> Candidates:
    """Returns the best 2K candidates; of equals the one of the better hypothesis first, then in the order of its row.

    The best 2K over all rows are among the best 2K of each row, therefore no more is asked for.

    Args:
        scores: float64 [B, K]; -inf: no such hypothesis, and none of its expansions exists.
        log_probabilities: of the best C tokens of each row, best first, of equals the lower id first; float32 [B, K, C]
            with C = 2K, or the size of a vocabulary that is smaller but holds at least two tokens.
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
    """Returns bool [B]: True for sequences that a hypothesis without probabilities makes meaningless.

    What `expand` gives for such a sequence is of no use. What the rows of hypotheses that do not exist hold does not
    matter.

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
    """Returns bool [B, 2K]: True for candidates that finish a hypothesis: end tokens among the first K.

    An end token behind these finishes nothing: its hypothesis is not among the best any more.
    """
    finishing: NDArray[np.bool_] = (candidates.token_ids == eos_id) & (candidates.scores != -np.inf)
    finishing[:, finishing.shape[1] // 2 :] = False
    return finishing


def survivors(candidates: Candidates, eos_id: int) -> Candidates:
    """Returns the first K candidates that do not end, which are searched on."""
    beam_size = candidates.token_ids.shape[1] // 2
    ending = candidates.token_ids == eos_id
    if not ending[:, :beam_size].any():
        return candidates.at((slice(None), slice(beam_size)))
    # A stable sort by one bit: what does not end comes first, in its order.
    first = np.argsort(ending, axis=1, kind="stable")[:, :beam_size]
    return candidates.at((_each(len(first)), first))


def place(rows: NDArray[np.int64], origins: NDArray[np.int64]) -> Placement:
    """Gives each hypothesis a row such that as few states as possible are copied.

    The first hypothesis of an origin keeps its row. Each further one takes a row whose hypothesis has no successor;
    there are as many of these, as K hypotheses live in K rows.

    Args:
        rows: row of the hypothesis of each rank before the step, int64 [B, K], all different.
        origins: rank before the step of the hypothesis that each one continues, int64 [B, K].
    """
    beam_size = rows.shape[1]
    same = origins[:, :, np.newaxis] == origins[:, np.newaxis, :]  # [B, K, K]
    further = (same & _earlier(beam_size)).any(axis=2)  # [B, K]: an earlier rank has the same origin
    free = ~(origins[:, np.newaxis, :] == np.arange(beam_size)[:, np.newaxis]).any(axis=2)  # [B, K]
    origin_rows = rows[_each(len(rows)), origins]
    # Masks are read row by row, and each sequence has as many further hypotheses as free rows: both keep step.
    sources, targets = origin_rows[further], rows[free]
    placed = origin_rows.copy()
    placed[further] = targets
    return Placement(placed, sources, targets)


@lru_cache
def _earlier(beam_size: int) -> NDArray[np.bool_]:
    """Returns which ranks come before which, bool [K, K]."""
    return np.tri(beam_size, k=-1, dtype=np.bool_)


def _each(sequences: int) -> NDArray[np.int64]:
    """Returns what takes from each sequence its own places, int64 [B, 1]: several times faster than take_along_axis."""
    return np.arange(sequences)[:, np.newaxis]
