"""What search found: one translation of a sequence, with its scores.

What finished hypotheses are compared by: score / length^alpha + beta * coverage.

Pure NumPy functions, called by the engine. They know neither how hypotheses were found nor when enough are.

Shapes: N hypotheses, S source tokens.
"""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

# No attention at all would count as -inf. Half precision tells nothing from zero that is ten times smaller.
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

    The sum is that of Wu et al. 2016, arXiv:1609.08144, equation 14, with another length penalty: see `normalize`.

    Args:
        scores: float64 [N].
        lengths: as of `normalize`, int [N].
        coverages: what `coverage` gives, float64 [N]; zeros where beta is 0.
        length_penalty: alpha.
        coverage_penalty: beta.
    """
    return normalize(scores, lengths, length_penalty) + coverage_penalty * coverages


def normalize(scores: NDArray[np.float64], lengths: NDArray[np.integer], length_penalty: float) -> NDArray[np.float64]:
    """Returns score / length^alpha, float64 [N].

    With alpha 0 the sum of log-probabilities, which favors short translations; with alpha 1 its mean. (Not the
    ((5 + length) / 6)^alpha of Wu et al. 2016, arXiv:1609.08144, equation 14.)

    Args:
        scores: sums of the natural log-probabilities of all tokens, the end token included, float64 [N].
        lengths: target tokens, with the end token unless the hypothesis was cut at the limit, int [N], at least 1.
        length_penalty: alpha.
    """
    quotients: NDArray[np.float64] = scores / np.power(lengths, length_penalty, dtype=np.float64)
    return quotients


def coverage(attention_sums: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns sum_i log(min(sum_j a_ij, 1)), float64 [N], with attention a of target token j to source token i.

    See Wu et al. 2016, arXiv:1609.08144, equation 14. 0 if every source token was looked at enough, else negative.
    Inner sums below `LEAST_COVERAGE` count as that. The outer one adds in order: source tokens at the end with inner
    sums of 1 or more, such as padding filled with 1, leave the result bitwise as it is.

    Args:
        attention_sums: sum_j a_ij over all target tokens, the end token (or rather the step that chose it) included;
            float32 [N, S], S at least 1.
    """
    logarithms = np.log(np.clip(attention_sums, LEAST_COVERAGE, 1.0, dtype=np.float64))  # [N, S]
    return np.cumsum(logarithms, axis=-1)[..., -1]


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
        normalized_score: what hypotheses are compared by, with length and coverage penalty.
        finish_reason: why it ended.
        token_scores: natural log-probability of each token; that of the end token last if it was reached.
        alignments: how much each token looked at each source token, float32 [T, S], the mean of the bundle's alignment
            heads; None if that was not asked for.
    """

    target_ids: tuple[int, ...]
    score: float
    normalized_score: float
    finish_reason: FinishReason
    token_scores: tuple[float, ...]
    alignments: NDArray[np.float32] | None = None
