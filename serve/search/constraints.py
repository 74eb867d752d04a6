"""Constraints on the logits of one hypothesis before its next token is chosen; they change the logits in place.

A forbidden token gets the logit -inf before the softmax, which renormalizes the others. No rule forbids the last
possible token: the end token stays. Logits that are all -inf give the score NaN. NaN stays NaN, so no rule hides
broken logits.

Shapes: V vocabulary.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.search.options import SearchOptions

INFINITY = np.float32(np.inf)


def constrain(
    logits: NDArray[np.float32],
    target_ids: Sequence[int],
    options: SearchOptions,
    eos_id: int,
    continuing_ids: Sequence[int] = (),
) -> None:
    """Applies the constraints of the options to the logits of a hypothesis.

    Args:
        logits: float32 [V].
        target_ids: the tokens so far.
        eos_id: the token that ends a translation.
        continuing_ids: tokens that continue a word.
    """
    penalize_repetition(logits, target_ids, options.repetition_penalty)
    forbid_repeated_ngrams(logits, target_ids, options.no_repeat_ngram_tokens, eos_id)
    forbid(logits, options.suppressed_ids)
    if options.begins_word(len(target_ids)):
        forbid(logits, continuing_ids)
    if len(target_ids) < options.min_target_tokens:
        postpone_end(logits, eos_id)


def keep(logits: NDArray[np.float32], candidates: NDArray[np.int32]) -> None:
    """Forbids all tokens but the candidates of a shortlist."""
    kept = logits[candidates]
    logits[:] = -INFINITY
    logits[candidates] = kept


def penalize_repetition(logits: NDArray[np.float32], target_ids: Sequence[int], penalty: float) -> None:
    """Makes tokens that the hypothesis already contains less likely, or more likely with a penalty below 1.

    Divides positive logits by the penalty, as in Keskar et al. 2019, arXiv:1909.05858, section 4.1. Multiplies negative
    ones by it, since division would raise them. Repeated tokens are penalized once. No token becomes forbidden.
    """
    factor, present = np.float32(penalty), list(set(target_ids))
    before = logits[present]
    with np.errstate(over="ignore"):  # some models mark impossible tokens with the lowest finite number
        logits[present] = np.where(before > 0, before / factor, before * factor)


def forbid_repeated_ngrams(logits: NDArray[np.float32], target_ids: Sequence[int], size: int, eos_id: int) -> None:
    """Forbids each token that would complete an n-gram which the hypothesis already contains (n-gram blocking).

    Paulus, Xiong and Socher 2018, arXiv:1705.04304, section 2.5, for any n instead of 3. The end token is never
    forbidden: without it a hypothesis could only reach its limit.

    Args:
        logits: float32 [V].
        target_ids: the tokens so far.
        size: n; 0: no rule; 1: no token occurs twice.
        eos_id: the token that ends a translation.
    """
    if not size:
        return
    ids = tuple(target_ids)
    ngrams = [ids[start : start + size] for start in range(len(ids) - size + 1)]
    last = ids[len(ids) - size + 1 :]
    forbid(logits, [ngram[-1] for ngram in ngrams if ngram[:-1] == last and ngram[-1] != eos_id])


def forbid(logits: NDArray[np.float32], token_ids: Sequence[int]) -> None:
    """Forbids tokens; they may repeat."""
    with np.errstate(invalid="ignore"):  # inf - inf gives NaN, which keeps broken logits visible
        logits[list(token_ids)] -= INFINITY


def postpone_end(logits: NDArray[np.float32], eos_id: int) -> None:
    """Forbids the end token, unless no other token is left.

    Apply it after the rules that forbid other tokens. A hypothesis that could neither continue nor end would fail.
    """
    before = logits[eos_id]
    forbid(logits, [eos_id])
    if (logits == -INFINITY).all():
        logits[eos_id] = before
