"""How a token is drawn from the logits: pure NumPy functions, the numbers to draw with among them.

The same seed draws the same tokens in any company: a row's numbers depend on its seed and hypothesis alone, and a row
is bitwise the same whoever its neighbors are. Called by the engine; knows neither the model nor sequences.

Shapes: M rows, V vocabulary.

How the next token is chosen where nothing but the model decides, and what any chosen token's score is.

Pure NumPy functions. The log-probabilities come from the model's runtime. Called by the engine; knows neither the model
nor sequences.
"""

import numpy as np
from numpy.typing import NDArray


def greedy(logits: NDArray[np.float32]) -> NDArray[np.int64]:
    """Returns the most probable token of each row, int64 [R]; the smallest id wins a tie.

    Args:
        logits: float32 [R, V].
    """
    return np.asarray(logits.argmax(axis=1))


def token_scores(log_probabilities: NDArray[np.float32], token_ids: NDArray[np.int64]) -> NDArray[np.float32]:
    """Returns the natural log-probability of one token of each row, float32 [R]; NaN if the row has none.

    Args:
        log_probabilities: float32 [R, V].
        token_ids: int64 [R].
    """
    return log_probabilities[np.arange(len(token_ids)), token_ids]


# A double holds this many bits after the point, if none before it is set.
DOUBLE_BITS = 53


def uniforms(seed: int, hypothesis: int, count: int) -> NDArray[np.float64]:
    """Returns numbers in [0, 1), of which the i-th decides the i-th target token, float64 [count].

    More of them begin with the same. A forced token leaves its number unused. They are the upper bits of Philox, a
    counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"), keyed by both
    arguments. Its raw output never changes between versions of NumPy, which promises less for its distributions.

    Args:
        seed: 0 to 2^64 - 1.
        hypothesis: which of a sequence's hypotheses they are for, 0 to 2^64 - 1.
        count: how many; the most target tokens, with the end token.
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
    """Draws a token of each row by inverse transform sampling.

    The probabilities are softmax(logits / temperature) over the tokens that top-k and then top-p leave, see `_kept`.
    Laid end to end in the order of their ids, the drawn token is the one whose interval holds the row's number.

    Args:
        logits: float32 [M, V], each row contiguous, with all constraints applied.
        temperatures: float64 [M], positive.
        top_ks: int [M], 0: all.
        top_ps: float64 [M], 1: all.
        uniforms: float64 [M], in [0, 1).

    Returns:
        the tokens, int64 [M]; any token for a row with NaN, with +inf or with nothing but -inf.
    """
    weights = _weights(logits, logits.max(axis=1, keepdims=True), temperatures)  # [M, V]
    limited = np.flatnonzero((top_ks > 0) | (top_ps < 1))
    weights[limited] *= _kept(
        logits[limited], weights[limited], temperatures[limited], top_ks[limited], top_ps[limited]
    )
    ends = weights.cumsum(axis=1)  # [M, V], sequential: a row's width does not matter
    # Below the last end, as a number is below 1; a token of weight 0 has no interval and is never drawn.
    return np.asarray((ends > (uniforms * ends[:, -1])[:, np.newaxis]).argmax(axis=1))


def _weights(
    logits: NDArray[np.float32], highest: NDArray[np.float32], temperatures: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns exp((logits - highest) / temperature), float64 [M, any], which is proportional to the probabilities.

    The highest logit of each row, float32 [M, 1], has weight 1. A broken row gets NaN somewhere.
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
    """Returns bool [M, V]: the tokens that top-k and then top-p leave; of equals the lower ids.

    Top-k (Fan, Lewis and Dauphin 2018, arXiv:1805.04833) leaves the k most probable tokens. Top-p (Holtzman et al.
    2020, arXiv:1904.09751, section 3.1) leaves the fewest most probable ones that have p of the probability which top-k
    left, the token that crosses the threshold included; always one.
    """
    vocabulary_size = logits.shape[1]
    totals = weights.sum(axis=1)  # [M]
    # The tokens below the floor have less than 1 - p of the probability even if all are: top-p leaves none of them,
    # and they need not be sorted.
    floors = (1 - top_ps) * totals / vocabulary_size
    probable = (weights >= floors[:, np.newaxis]).sum(axis=1)  # at least 1 unless the row is broken
    most = np.where(top_ks > 0, np.minimum(top_ks, vocabulary_size), probable)  # [M]
    width = int(most.max(initial=1))
    best = np.sort(np.partition(logits, vocabulary_size - width, axis=1)[:, -width:], axis=1)[:, ::-1]  # [M, width]
    sums = _weights(best, best[:, :1], temperatures).cumsum(axis=1)  # [M, width]
    left = np.where(top_ks > 0, np.take_along_axis(sums, most[:, np.newaxis] - 1, axis=1)[:, 0], totals)
    # A neighbor may need a greater width: no more than the row's own tokens count, however the sums are rounded.
    counts = np.minimum(1 + (sums < (top_ps * left)[:, np.newaxis]).sum(axis=1), most)
    lowest = np.take_along_axis(best, counts[:, np.newaxis] - 1, axis=1)  # [M, 1], the least probable that is left
    kept: NDArray[np.bool_] = logits >= lowest
    rows, token_ids = np.nonzero(logits == lowest)  # row by row, ids ascending
    places = counts - (logits > lowest).sum(axis=1)  # [M], for the tokens that are as probable as the last one left
    surplus = np.arange(len(rows)) - np.searchsorted(rows, rows) >= places[rows]
    kept[rows[surplus], token_ids[surplus]] = False
    return kept
