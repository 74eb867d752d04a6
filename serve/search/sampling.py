"""Samples the next token of one hypothesis.

The random numbers follow from seed and sample, so that a sample is bitwise the same in any batch. V vocabulary.
"""

import numpy as np
from numpy.typing import NDArray

# Bits of a double's significand: the finest equal steps in [0, 1).
DOUBLE_BITS = 53


def uniforms(seed: int, sample: int, count: int) -> NDArray[np.float64]:
    """Returns random numbers in [0, 1), float64 [count]; the i-th decides the i-th target token.

    The first numbers do not depend on `count`. A forced token leaves its number unused. The source is Philox, a
    counter-based generator (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"). Seed and sample, each
    below 2^64, are its key. NumPy guarantees a stable raw output across versions, but not stable distributions.
    """
    raw = np.random.Philox(key=np.array([seed, sample], np.uint64)).random_raw(count)
    return (raw >> np.uint64(64 - DOUBLE_BITS)).astype(np.float64) * 2.0**-DOUBLE_BITS


def draw(logits: NDArray[np.float32], temperature: float, top_k: int, top_p: float, number: float) -> int:
    """Samples a token by inverse transform sampling.

    The probabilities are softmax(logits / temperature) over the tokens that `_kept` returns. They partition [0, 1) in
    the order of the ids, and the number selects the token.

    Args:
        logits: float32 [V], with all constraints applied.
        temperature: positive.
        top_k: 0: all.
        top_p: 1: all.
        number: in [0, 1).

    Returns:
        the token; 0 if the logits have no softmax: with NaN, with +inf or with only -inf.
    """
    highest = logits.max()
    if not np.isfinite(highest):
        return 0
    with np.errstate(over="ignore"):
        weights = np.exp((logits.astype(np.float64) - highest) / temperature)
    if top_k or top_p < 1:
        dropped = np.ones(len(logits), np.bool_)
        dropped[_kept(logits, weights, top_k, top_p)] = False
        weights[dropped] = 0
    ends = weights.cumsum()
    # number < 1, so the product is below the last end. A token of weight 0 has an empty interval.
    return int((ends > number * ends[-1]).argmax())


def _kept(logits: NDArray[np.float32], weights: NDArray[np.float64], top_k: int, top_p: float) -> NDArray[np.int64]:
    """Returns the tokens that top-k and then top-p keep, int64 [any], most probable first; ties keep the lower ids.

    Top-k (Fan, Lewis and Dauphin 2018, arXiv:1805.04833) keeps the k most probable tokens. Of their probability, top-p
    (Holtzman et al. 2020, arXiv:1904.09751, section 3.1) keeps the fewest most probable tokens that reach the share p.
    """
    ranked = np.argsort(-logits, kind="stable")[: top_k or None]
    sums = weights[ranked].cumsum()
    return ranked[: 1 + int((sums < top_p * sums[-1]).sum())]
