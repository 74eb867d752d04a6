"""How the next token is chosen where nothing but the model decides, and what any chosen token's score is.

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
