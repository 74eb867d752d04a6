"""How the next token is chosen from the logits: pure NumPy functions, one for each kind of search.

A row is bitwise the same whoever its neighbours are: every reduction runs along one contiguous row, in an order that
depends on the length of the row alone. Called by the engine; knows neither the model nor sequences.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class GreedyStep:
    """What greedy search chose for R rows.

    Attributes:
        token_ids: int64 [R], the most probable token.
        scores: float32 [R], its natural log-probability; NaN if the row's logits define no probability.
    """

    token_ids: NDArray[np.int64]
    scores: NDArray[np.float32]


def greedy(logits: NDArray[np.float32]) -> GreedyStep:
    """Chooses the most probable token of each row; the smallest id wins a tie.

    Args:
        logits: float32 [R, V], each row contiguous. A row with NaN, with +inf or with nothing but -inf gets score NaN.
    """
    token_ids = logits.argmax(axis=1)  # [R]; the position of the first NaN if there is one
    return GreedyStep(token_ids, token_scores(logits, token_ids, token_ids))


def token_scores(
    logits: NDArray[np.float32], token_ids: NDArray[np.int64], best_ids: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Returns the natural log-probability of one token of each row, float32 [R]; NaN if there are no probabilities.

    The log-softmax `l - logsumexp(l)`, both terms shifted by the maximum against overflow (Blanchard, Higham and
    Higham, 2021, "Accurately computing the log-sum-exp and softmax functions").

    Args:
        logits: float32 [R, V], each row contiguous.
        token_ids: int64 [R].
        best_ids: a token with the highest logit of each row, or one whose logit is no number; int64 [R].
    """
    rows = np.arange(len(logits))
    highest = logits[rows, best_ids][:, np.newaxis]  # [R, 1]
    with np.errstate(invalid="ignore"):  # inf - inf is the NaN that reports a broken row
        shifted = logits - highest  # [R, V]
        chosen = shifted[rows, token_ids]
        totals = np.exp(shifted, out=shifted).sum(axis=1)  # [R], at least 1
    scores: NDArray[np.float32] = chosen - np.log(totals)
    return scores
