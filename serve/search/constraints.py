"""Constraints on logits before a token is chosen: pure NumPy functions that change the logits in place.

A forbidden token gets the logit -inf before the softmax, which renormalizes the others. No rule forbids the last
possible token: the end token stays. A row without it holds only -inf, which gives the score NaN. NaN stays NaN, so no
rule hides a broken row.

Shapes: M rows, V vocabulary, N pairs, T most target tokens; a row has `lengths` of them, the rest is not read.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

# Tokens to test before the whole vocabulary, to see whether a row has any token left.
PEEKED_TOKENS = 64


def penalize_repetition(
    logits: NDArray[np.float32],
    target_ids: NDArray[np.int64],
    lengths: NDArray[np.integer],
    penalties: NDArray[np.float32],
) -> None:
    """Makes tokens that a row already contains less likely, or more likely with a penalty below 1.

    Divides positive logits by the penalty, as in Keskar et al. 2019, arXiv:1909.05858, section 4.1. Multiplies negative
    ones by it, since division would raise them. Repeated tokens are penalized once. No token becomes forbidden.

    Args:
        logits: float32 [M, V].
        target_ids: int64 [M, T], without the begin token.
        lengths: int [M].
        penalties: float32 [M], positive; 1 changes nothing.
    """
    rows, positions = np.nonzero(np.arange(target_ids.shape[1]) < lengths[:, np.newaxis])
    token_ids = target_ids[rows, positions]
    before, factors = logits[rows, token_ids], penalties[rows]
    with np.errstate(over="ignore"):  # some models mark impossible tokens with the lowest finite number
        # A repeated token is read each time before the write, and written with the same value.
        logits[rows, token_ids] = np.where(before > 0, before / factors, before * factors)


def forbid_repeated_ngrams(
    logits: NDArray[np.float32],
    target_ids: NDArray[np.int64],
    lengths: NDArray[np.integer],
    sizes: NDArray[np.integer],
    *,
    eos_id: int,
) -> None:
    """Forbids each token that would complete an n-gram which its row already contains (n-gram blocking).

    Paulus, Xiong and Socher 2018, arXiv:1705.04304, section 2.5, for any n instead of 3. The end token is never
    forbidden: without it a row could only reach its limit.

    Args:
        logits: float32 [M, V].
        target_ids: int64 [M, T], without the begin token.
        lengths: int [M].
        sizes: n of each row, int [M]; 0: no rule; 1: no token occurs twice.
        eos_id: the token that ends a translation.
    """
    for size in np.unique(sizes[(sizes > 0) & (sizes <= lengths)]).tolist():
        rows = np.flatnonzero((sizes == size) & (lengths >= size))  # [m]
        ends = lengths[rows]
        targets = target_ids[rows, : ends.max()]
        last = np.take_along_axis(targets, ends[:, np.newaxis] + np.arange(1 - size, 0), axis=1)  # [m, n - 1]
        ngrams = sliding_window_view(targets, size, axis=1)  # [m, longest - n + 1, n]
        repeated = (ngrams[:, :, :-1] == last[:, np.newaxis]).all(axis=2)
        repeated &= np.arange(size, targets.shape[1] + 1) <= ends[:, np.newaxis]
        repeated &= ngrams[:, :, -1] != eos_id
        places, starts = np.nonzero(repeated)
        suppress(logits, rows[places], ngrams[places, starts, -1])


def postpone_end(logits: NDArray[np.float32], rows: NDArray[np.int64], eos_id: int) -> None:
    """Forbids the end token in N different rows, int64 [N], except where no other token is left; logits float32 [M, V].

    Apply it after the rules that forbid other tokens. A row that could neither continue nor end would fail.
    """
    ends = logits[rows, eos_id]
    suppress(logits, rows, np.full(len(rows), eos_id))
    # Almost always one of the first tokens is possible, and the rest of the vocabulary need not be read.
    doubtful = np.flatnonzero(logits[rows, :PEEKED_TOKENS].max(axis=1) == -np.inf)
    alone = doubtful[logits[rows[doubtful]].max(axis=1) == -np.inf]
    logits[rows[alone], eos_id] = ends[alone]


def suppress(logits: NDArray[np.float32], rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> None:
    """Forbids `token_ids`, int64 [N], in `rows`, int64 [N], of logits, float32 [M, V]; pairs may repeat."""
    with np.errstate(invalid="ignore"):  # inf - inf gives NaN, which keeps a broken row visible
        logits[rows, token_ids] -= np.float32(np.inf)
