"""A finished translation, and the score that hypotheses are ranked by: score / length^alpha + beta * coverage."""

import math
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Avoids log(0) = -inf for a source token without attention. A tenth of it is zero in half precision.
MIN_COVERAGE = 1e-6


def normalized_score(
    score: float, length: int, covered: float, *, length_penalty: float, coverage_penalty: float
) -> float:
    """Returns score / length^alpha + beta * coverage.

    Wu et al. 2016, arXiv:1609.08144, equation 14, with another length penalty: see `normalize`. Beta is the coverage
    penalty, `covered` the result of `coverage`, or 0 if beta is 0.
    """
    return normalize(score, length, length_penalty) + coverage_penalty * covered


def normalize(score: float, length: int, length_penalty: float) -> float:
    """Returns score / length^alpha.

    Alpha 0 gives the sum of log-probabilities, which favors short translations; alpha 1 gives the mean. This is not the
    ((5 + length) / 6)^alpha of Wu et al. 2016, arXiv:1609.08144, equation 14.

    Args:
        score: sum of the natural log-probabilities of all tokens, including the end token.
        length: target tokens, including the end token unless cut at the limit, at least 1.
        length_penalty: alpha.
    """
    return score / math.pow(length, length_penalty)


def coverage(attention_sums: NDArray[np.float32]) -> float:
    """Returns sum_i log(min(sum_j a_ij, 1)), with attention a of target token j to source token i.

    Wu et al. 2016, arXiv:1609.08144, equation 14. The result is 0 at full coverage, else negative. Inner sums have the
    lower bound `MIN_COVERAGE`. The outer sum runs in order.

    `attention_sums`: sum_j a_ij over all target tokens, including the step that chose the end token; float32 [S].
    """
    covered = 0.0
    for attention in attention_sums.tolist():
        covered += math.log(min(max(attention, MIN_COVERAGE), 1.0))
    return covered


class FinishReason(StrEnum):
    """Why a translation ended."""

    EOS = "eos"
    LENGTH = "length"


class Hypothesis(NamedTuple):
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

    def without_start(self, tokens: int) -> "Hypothesis":
        """Returns the hypothesis without its first tokens, which have score 0."""
        return self._replace(
            target_ids=self.target_ids[tokens:],
            token_scores=self.token_scores[tokens:],
            alignments=None if self.alignments is None else self.alignments[tokens:],
        )
