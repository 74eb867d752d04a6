"""What logits go through before a token is chosen: pure NumPy functions that change them in place.

What is forbidden gets the logit -inf, before the softmax: probabilities are renormalized over the tokens that are left.
No rule takes the last token that is left: the end token stays. A row without it holds nothing but -inf, which whoever
chooses reports as score NaN, and a logit that is no number stays none, so that no rule hides a broken row. Called by
the engine; knows neither the model nor how tokens are chosen.

Shapes: M rows, V vocabulary, N pairs, T most target tokens: a row has `lengths` of them, what lies behind is not read.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

# Of the vocabulary, to see whether a row has anything left.
PEEKED_TOKENS = 64


def penalise_repetition(
    logits: NDArray[np.float32],
    target_ids: NDArray[np.int64],
    lengths: NDArray[np.integer],
    penalties: NDArray[np.float32],
) -> None:
    """Makes tokens that a row has already less likely, however often it has them (more likely by a penalty below 1).

    Their logits are divided by the penalty where positive, as in Keskar et al. 2019, arXiv:1909.05858, section 4.1, and
    multiplied by it where negative, which division would raise. No token is forbidden by that.

    Args:
        logits: float32 [M, V].
        target_ids: int64 [M, T], without the begin token.
        lengths: int [M].
        penalties: float32 [M], positive; 1 changes nothing.
    """
    rows, positions = np.nonzero(np.arange(target_ids.shape[1]) < lengths[:, np.newaxis])
    token_ids = target_ids[rows, positions]
    before, factors = logits[rows, token_ids], penalties[rows]
    with np.errstate(over="ignore"):  # some models mark what they never say by the lowest finite number
        # A token that occurs twice is read twice before it is written, and written the same.
        logits[rows, token_ids] = np.where(before > 0, before / factors, before * factors)


def forbid_repeated_ngrams(
    logits: NDArray[np.float32],
    target_ids: NDArray[np.int64],
    lengths: NDArray[np.integer],
    sizes: NDArray[np.integer],
    *,
    eos_id: int,
) -> None:
    """Forbids each token that would end a sequence of n tokens which its row has already (n-gram blocking).

    The rule is that of Paulus, Xiong and Socher 2018, arXiv:1705.04304, section 2.5, for any n instead of 3. It never
    forbids the end token, without which a row could only run into its limit.

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
    """Forbids the end token in some rows, but not where the other rules have left nothing else.

    A translation that can neither go on nor end would have to fail, for a length that nobody can have. Comes after the
    rules that forbid other tokens.

    Args:
        logits: float32 [M, V].
        rows: int64 [N], all different.
        eos_id: the token that ends a translation.
    """
    ends = logits[rows, eos_id]
    suppress(logits, rows, np.full(len(rows), eos_id))
    # Nearly always one of a few tokens may come, and the others need not be looked at.
    doubtful = np.flatnonzero(logits[rows, :PEEKED_TOKENS].max(axis=1) == -np.inf)
    alone = doubtful[logits[rows[doubtful]].max(axis=1) == -np.inf]
    logits[rows[alone], eos_id] = ends[alone]


def suppress(logits: NDArray[np.float32], rows: NDArray[np.int64], token_ids: NDArray[np.int64]) -> None:
    """Forbids one token in one row for each pair.

    Args:
        logits: float32 [M, V].
        rows: int64 [N]; a pair may occur several times.
        token_ids: int64 [N].
    """
    with np.errstate(invalid="ignore"):  # inf - inf: that the row is broken must still be seen
        logits[rows, token_ids] -= np.float32(np.inf)
