"""What search found: one translation of a sequence, with its scores."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray


class FinishReason(StrEnum):
    """Why a translation ended."""

    EOS = "eos"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """A finished translation, T tokens of a source of S.

    Attributes:
        target_ids: its tokens, the end token excluded.
        score: sum of the natural log-probabilities of its tokens, the end token included.
        normalised_score: what hypotheses are compared by, with length and coverage penalty.
        finish_reason: why it ended.
        token_scores: natural log-probability of each token; that of the end token last if it was reached.
        alignments: how much each token looked at each source token, float32 [T, S], the mean of the bundle's alignment
            heads; None if that was not asked for.
    """

    target_ids: tuple[int, ...]
    score: float
    normalised_score: float
    finish_reason: FinishReason
    token_scores: tuple[float, ...]
    alignments: NDArray[np.float32] | None = None
