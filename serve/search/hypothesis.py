"""A finished translation, and the score that hypotheses are ranked by: score / length^alpha + beta * coverage.

Shapes: N hypotheses, S source tokens.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

# Avoids log(0) = -inf for a source token without attention. A tenth of it is zero in half precision.
LEAST_COVERAGE = 1e-6


def normalized_scores(
    scores: NDArray[np.float64],
    lengths: NDArray[np.integer],
    coverages: NDArray[np.float64],
    *,
    length_penalty: float,
    coverage_penalty: float,
) -> NDArray[np.float64]:
    """Returns score / length^alpha + beta * coverage, float64 [N].

    Wu et al. 2016, arXiv:1609.08144, equation 14, with another length penalty: see `normalize`.

    Args:
        scores: float64 [N].
        lengths: as for `normalize`, int [N].
        coverages: result of `coverage`, float64 [N]; zeros if beta is 0.
        length_penalty: alpha.
        coverage_penalty: beta.
    """
    return normalize(scores, lengths, length_penalty) + coverage_penalty * coverages


def normalize(scores: NDArray[np.float64], lengths: NDArray[np.integer], length_penalty: float) -> NDArray[np.float64]:
    """Returns score / length^alpha, float64 [N].

    Alpha 0 gives the sum of log-probabilities, which favors short translations; alpha 1 gives the mean. This is not the
    ((5 + length) / 6)^alpha of Wu et al. 2016, arXiv:1609.08144, equation 14.

    Args:
        scores: sums of the natural log-probabilities of all tokens, including the end token, float64 [N].
        lengths: target tokens, including the end token unless cut at the limit, int [N], at least 1.
        length_penalty: alpha.
    """
    quotients: NDArray[np.float64] = scores / np.power(lengths, length_penalty, dtype=np.float64)
    return quotients


def coverage(attention_sums: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns sum_i log(min(sum_j a_ij, 1)), float64 [N], with attention a of target token j to source token i.

    Wu et al. 2016, arXiv:1609.08144, equation 14. The result is 0 at full coverage, else negative. Inner sums have the
    lower bound `LEAST_COVERAGE`. The outer sum runs in order, so trailing source tokens with inner sums of 1 or more,
    such as padding filled with 1, leave it bitwise unchanged.

    Args:
        attention_sums: sum_j a_ij over all target tokens, including the step that chose the end token; float32 [N, S],
            S at least 1.
    """
    logarithms = np.log(np.clip(attention_sums, LEAST_COVERAGE, 1.0, dtype=np.float64))  # [N, S]
    return np.cumsum(logarithms, axis=-1)[..., -1]


class FinishReason(StrEnum):
    """Why a translation ended."""

    EOS = "eos"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """A finished translation of T tokens for a source of S.

    Attributes:
        target_ids: tokens without the end token.
        score: sum of the natural log-probabilities of the tokens, including the end token.
        normalized_score: score with length and coverage penalty, by which hypotheses are ranked.
        token_scores: natural log-probability of each token, including the end token if it was reached.
        alignments: attention to the source, float32 [T, S], mean of the alignment heads; None if not requested.
    """

    target_ids: tuple[int, ...]
    score: float
    normalized_score: float
    finish_reason: FinishReason
    token_scores: tuple[float, ...]
    alignments: NDArray[np.float32] | None = None
