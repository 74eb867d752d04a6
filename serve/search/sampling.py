"""Chooses the next token: greedy or by sampling, with its score. Pure NumPy functions.

A sample depends only on its row: the random numbers follow from seed and hypothesis. A row's result is bitwise the
same in any batch.

Shapes: M rows, V vocabulary, R rows.
"""

import numpy as np
from numpy.typing import NDArray


def greedy(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """Returns the most probable token of each row of [R, V], int64 [R]; ties go to the smallest id."""
    return np.asarray(logits.argmax(axis=1))


def token_scores(log_probabilities: NDArray[np.float32], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns the natural log-probability of one token per row of [R, V], float32 [R]; NaN if the row is broken."""
    return log_probabilities[np.arange(len(token_ids)), token_ids]


# Bits of a double's significand: the finest equal steps in [0, 1).
DOUBLE_BITS = 53


def uniforms(seed: int, hypothesis: int, count: int) -> NDArray[np.float64]:
    """Returns random numbers in [0, 1), float64 [count]; the i-th decides the i-th target token.

    The first numbers do not depend on `count`. A forced token leaves its number unused. The source is Philox, a
    counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). Seed and hypothesis,
    each below 2^64, are its key. NumPy guarantees a stable raw output across versions, but not stable distributions.
    """
    raw = np.random.Philox(key=np.array([seed, hypothesis], np.uint64)).random_raw(count)
    return (raw >> np.uint64(64 - DOUBLE_BITS)).astype(np.float64) * 2.0**-DOUBLE_BITS


def draw(
    logits: NDArray[np.float32],
    temperatures: NDArray[np.float64],
    top_ks: NDArray[np.integer],
    top_ps: NDArray[np.float64],
    uniforms: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Samples a token of each row by inverse transform sampling.

    The probabilities are softmax(logits / temperature) over the tokens that `_kept` returns. They partition [0, 1) in
    the order of the ids, and the row's uniform number selects the token.

    Args:
        logits: float32 [M, V], each row contiguous, with all constraints applied.
        temperatures: float64 [M], positive.
        top_ks: int [M], 0: all.
        top_ps: float64 [M], 1: all.
        uniforms: float64 [M], in [0, 1).

    Returns:
        the tokens, int64 [M]; an arbitrary token for a row with NaN, with +inf or with only -inf.
    """
    weights = _weights(logits, logits.max(axis=1, keepdims=True), temperatures)  # [M, V]
    limited = np.flatnonzero((top_ks > 0) | (top_ps < 1))
    weights[limited] *= _kept(
        logits[limited], weights[limited], temperatures[limited], top_ks[limited], top_ps[limited]
    )
    ends = weights.cumsum(axis=1)  # [M, V]; sequential, so that other rows do not change the rounding
    # uniforms < 1, so the product is below the last end. A token of weight 0 has an empty interval.
    return np.asarray((ends > (uniforms * ends[:, -1])[:, np.newaxis]).argmax(axis=1))


def _weights(
    logits: NDArray[np.float32], highest: NDArray[np.float32], temperatures: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns exp((logits - highest) / temperature), float64 [M, any], proportional to the probabilities.

    The highest logit of each row, float32 [M, 1], gets weight 1. A broken row gets at least one NaN.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        exponents = (logits.astype(np.float64) - highest) / temperatures[:, np.newaxis]
    return np.exp(exponents, out=exponents)


def _kept(
    logits: NDArray[np.float32],
    weights: NDArray[np.float64],
    temperatures: NDArray[np.float64],
    top_ks: NDArray[np.integer],
    top_ps: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Returns bool [M, V]: the tokens that top-k and then top-p keep; ties keep the lower ids.

    Top-k (Fan, Lewis and Dauphin 2018, arXiv:1805.04833) keeps the k most probable tokens. Of their probability, top-p
    (Holtzman et al. 2020, arXiv:1904.09751, section 3.1) keeps the fewest most probable tokens that reach the share p.
    """
    # Axis 0 is the row, M. Axis 1 is the token id, V, or the rank by logit, `width`, most probable first.
    # [:, np.newaxis] broadcasts one value per row over its tokens or ranks.
    vocabulary_size = logits.shape[1]
    totals = weights.sum(axis=1)  # [M]
    # Tokens below the floor have a joint probability below 1 - p even if all V are below: top-p drops them all, so they
    # need no sorting.
    floors = (1 - top_ps) * totals / vocabulary_size
    probable = (weights >= floors[:, np.newaxis]).sum(axis=1)  # at least 1 unless the row is broken
    most = np.where(top_ks > 0, np.minimum(top_ks, vocabulary_size), probable)  # [M]
    width = int(most.max(initial=1))
    best = np.sort(np.partition(logits, vocabulary_size - width, axis=1)[:, -width:], axis=1)[:, ::-1]  # [M, width]
    sums = _weights(best, best[:, :1], temperatures).cumsum(axis=1)  # [M, width]
    left = np.where(top_ks > 0, np.take_along_axis(sums, most[:, np.newaxis] - 1, axis=1)[:, 0], totals)
    # The sums may be wider than this row needs, for another row: `most` bounds the count whatever the rounding.
    counts = np.minimum(1 + (sums < (top_ps * left)[:, np.newaxis]).sum(axis=1), most)
    lowest = np.take_along_axis(best, counts[:, np.newaxis] - 1, axis=1)  # [M, 1], the least probable token kept
    kept: NDArray[np.bool_] = logits >= lowest
    rows, token_ids = np.nonzero(logits == lowest)  # in order of rows, then of ids
    places = counts - (logits > lowest).sum(axis=1)  # [M]; ties at the lowest logit to keep
    surplus = np.arange(len(rows)) - np.searchsorted(rows, rows) >= places[rows]
    kept[rows[surplus], token_ids[surplus]] = False
    return kept
