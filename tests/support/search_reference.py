"""Search for one sequence alone, slow and simple: the reference of the served search.

Only the tokens of each hypothesis are kept between steps; its logits, scores and attention are recomputed from them in
float64. `search` documents every option.
"""

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.search.hypothesis import MIN_COVERAGE, FinishReason
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.search.sampling import uniforms

Tokens = tuple[int, ...]
# Maps the target tokens so far, without BOS, to the logits of the next token, [V].
NextLogits = Callable[[Tokens], NDArray[np.float64]]
# Maps the same to the attention of that step to each source token, [S].
Attention = Callable[[Tokens], NDArray[np.float64]]


class BrokenSearchError(Exception):
    """No token has a probability where one must be chosen: the sequence has no translation."""


@dataclass(frozen=True, slots=True)
class Found:
    """A finished translation; the attributes are those of `dragoman.serve.search.hypothesis.Hypothesis`."""

    target_ids: Tokens
    score: float
    normalized_score: float
    finish_reason: FinishReason
    token_scores: tuple[float, ...]


def search(
    next_logits: NextLogits,
    options: SearchOptions,
    *,
    eos_id: int,
    attention: Attention | None = None,
    continuing_ids: Collection[int] = (),
) -> list[Found]:
    """Returns the translations that were found, best first, at most `options.hypotheses`.

    - **Kinds.** Sampling if the temperature is positive, else greedy search if the beam holds one hypothesis, else beam
      search. Greedy search is beam search with K = 1 and patience 1: the best of two candidates ends or lives on.
    - **Forced tokens**, the prefix and then the end token if that is forced, are taken whatever their probability is,
      which is that of the unconstrained logits. They count for scores and lengths and, the end token excepted, for both
      limits, the repetition penalty and the n-gram rule. Until they are used up, only one hypothesis lives.
    - **Constraints** change the logits of tokens that are chosen: repetition penalty first, then what is forbidden gets
      no probability, and the others have all of it. A token that continues a word is forbidden after the prefix if a
      new word must begin there. The n-gram rule never forbids the end token, which occurs once.
    - **The end.** A hypothesis ends with the end token, or is cut when it has `max_target_tokens` tokens, without
      asking whether the end token would follow; but a forced end is still scored there, and ends it.
    - **Scores** sum the natural log-probabilities under the constrained logits; temperature, top-k and top-p leave
      them alone. The normalized score is score / length^alpha + beta * coverage; the length counts the end token unless
      the hypothesis was cut, and coverage all steps that chose a token of it, the end token included.
    - **Order.** By normalized score; of equals, the one that finished first, or that was drawn by the lower hypothesis.

    Args:
        options: any; the prefix has at most `max_target_tokens` tokens, none of them the end token.
        eos_id: the token that ends a translation.
        attention: needed for a coverage penalty.
        continuing_ids: tokens that continue a word.

    Raises:
        BrokenSearchError: logits with NaN or +inf for any live hypothesis, or with no token left because the model
            has no end; or a forced token without probability.
    """
    sentence = Sentence(next_logits, options, eos_id, attention, continuing_ids)
    if options.sampled:
        finished = [sample(sentence, hypothesis) for hypothesis in range(options.hypotheses)]
    elif options.beam_size == 1:
        finished = [greedy(sentence)]
    else:
        finished = beam(sentence)
    return sorted(finished, key=lambda found: -found.normalized_score)[: options.hypotheses]


@dataclass(frozen=True, slots=True)
class Sentence:
    """One source, as search sees it: all values follow from the tokens of a hypothesis.

    A hypothesis is the tuple of its tokens, EOS last if it has ended.
    """

    next_logits: NextLogits
    options: SearchOptions
    eos_id: int
    attention: Attention | None
    continuing_ids: Collection[int] = ()

    def forced(self, tokens: Tokens) -> int | None:
        forced = self.options.target_prefix + ((self.eos_id,) if self.options.forced_end else ())
        return forced[len(tokens)] if len(tokens) < len(forced) else None

    def over(self, tokens: Tokens) -> bool:
        complete = len(tokens) == self.options.max_target_tokens and self.forced(tokens) != self.eos_id
        return complete or tokens[-1:] == (self.eos_id,)

    def logits(self, tokens: Tokens) -> list[float]:
        logits = [float(logit) for logit in self.next_logits(tokens)]
        penalty = self.options.repetition_penalty
        for token_id in set(tokens):
            logits[token_id] = logits[token_id] / penalty if logits[token_id] > 0 else logits[token_id] * penalty
        if any(math.isnan(logit) or logit == math.inf for logit in logits):
            return logits
        left = [-math.inf if self.forbidden(tokens, token_id) else logit for token_id, logit in enumerate(logits)]
        going_on = left[: self.eos_id] + left[self.eos_id + 1 :]
        # A translation that cannot continue may end, however short it is.
        if len(tokens) < self.options.min_target_tokens and max(going_on) > -math.inf:
            left[self.eos_id] = -math.inf
        return left

    def forbidden(self, tokens: Tokens, token_id: int) -> bool:
        """Returns whether a token is forbidden, regardless of the other tokens."""
        size = self.options.no_repeat_ngram_tokens
        longer = (*tokens, token_id)
        ngrams = [longer[start : start + size] for start in range(len(longer) - size + 1)]
        repeats = size > 0 and len(longer) >= size and ngrams.count(longer[-size:]) > 1
        begins = self.options.new_word and len(tokens) == len(self.options.target_prefix)
        continues = begins and token_id in self.continuing_ids
        return repeats or continues or token_id in self.options.suppressed_ids

    def log_probabilities(self, tokens: Tokens) -> list[float]:
        """Returns the log-probabilities of the next token, constrained unless it is forced; 0 for a start token."""
        if len(tokens) < self.options.start_tokens:
            return [0.0] * len(self.next_logits(tokens))
        if self.forced(tokens) is None:
            return log_softmax(self.logits(tokens))
        return log_softmax([float(logit) for logit in self.next_logits(tokens)])

    def token_scores(self, tokens: Tokens) -> tuple[float, ...]:
        return tuple(self.log_probabilities(tokens[:index])[token_id] for index, token_id in enumerate(tokens))

    def score(self, tokens: Tokens) -> float:
        """Returns the sum of the token scores; raises BrokenSearchError if a token has no probability."""
        score = sum(self.token_scores(tokens), start=0.0)
        if not math.isfinite(score):
            raise BrokenSearchError
        return score

    def coverage(self, tokens: Tokens) -> float:
        """Returns the sum over source tokens of log(min(attention to it, 1))."""
        assert self.attention is not None
        sums = sum(self.attention(tokens[:index]) for index in range(len(tokens)))
        return sum(math.log(min(max(float(total), MIN_COVERAGE), 1.0)) for total in np.atleast_1d(sums))

    def found(self, tokens: Tokens) -> Found:
        score = self.score(tokens)
        normalized_score = score / len(tokens) ** self.options.length_penalty
        if self.options.coverage_penalty:
            normalized_score += self.options.coverage_penalty * self.coverage(tokens)
        ended = tokens[-1:] == (self.eos_id,)
        reason = FinishReason.EOS if ended else FinishReason.LENGTH
        return Found(tokens[: len(tokens) - ended], score, normalized_score, reason, self.token_scores(tokens))


def log_softmax(logits: list[float]) -> list[float]:
    """Returns natural log-probabilities; raises BrokenSearchError if no token has one."""
    highest = max(logits)
    if any(math.isnan(logit) for logit in logits) or math.isinf(highest):
        raise BrokenSearchError
    total = math.fsum(math.exp(logit - highest) for logit in logits)
    return [logit - highest - math.log(total) for logit in logits]


def greedy(sentence: Sentence) -> Found:
    """Chooses the most probable token at each step; the lowest id of equals."""
    tokens: Tokens = ()
    while not sentence.over(tokens):
        token_id = sentence.forced(tokens)
        if token_id is None:
            log_probabilities = sentence.log_probabilities(tokens)
            token_id = log_probabilities.index(max(log_probabilities))
        tokens = (*tokens, token_id)
    return sentence.found(tokens)


def sample(sentence: Sentence, hypothesis: int) -> Found:
    """Draws each token by the random number of its position; a forced token leaves its number unused."""
    options = sentence.options
    numbers = uniforms(options.seed, hypothesis, options.max_target_tokens + 1)
    tokens: Tokens = ()
    while not sentence.over(tokens):
        token_id = sentence.forced(tokens)
        if token_id is None:
            token_id = draw(sentence.logits(tokens), options, float(numbers[len(tokens)]))
        tokens = (*tokens, token_id)
    return sentence.found(tokens)


def draw(logits: list[float], options: SearchOptions, number: float) -> int:
    """Returns the token whose interval contains the number; the intervals follow the ids."""
    highest = max(logits)
    probabilities = [math.exp(x) for x in log_softmax([(logit - highest) / options.temperature for logit in logits])]
    ranked = sorted(range(len(logits)), key=lambda token_id: (-logits[token_id], token_id))
    left = ranked[: options.top_k] if options.top_k else ranked
    if options.top_p < 1:
        left = nucleus(left, probabilities, options.top_p)
    target = number * sum(probabilities[token_id] for token_id in sorted(left))
    end = 0.0
    for token_id in sorted(left):
        end += probabilities[token_id]
        if end > target:
            return token_id
    raise AssertionError


def nucleus(ranked: list[int], probabilities: list[float], top_p: float) -> list[int]:
    """Returns the fewest tokens with this share of the probability, at least one."""
    total = sum(probabilities[token_id] for token_id in ranked)
    count = 1
    while sum(probabilities[token_id] for token_id in ranked[:count]) < top_p * total:
        count += 1
    return ranked[:count]


def beam(sentence: Sentence) -> list[Found]:
    """Follows the K best hypotheses until round(patience * K), but at least one, are finished.

    At each step all live hypotheses are expanded by all tokens. Of the best 2K, those of the first K that end are
    finished, and the first K that do not end are searched on. When these have `max_target_tokens` tokens, they are
    finished as they are.
    """
    options = sentence.options
    enough = max(1, round(options.patience * options.beam_size))
    finished: list[Found] = []
    live: list[Tokens] = [()]
    while live and len(finished) < enough:
        over = [tokens for tokens in live if sentence.over(tokens)]
        if over:  # all of them: they are of the same length
            return finished + [sentence.found(tokens) for tokens in over]
        candidates = sorted(expansions(sentence, live), key=lambda candidate: -candidate[0])  # stable
        best = [tokens for _, tokens in candidates[: 2 * options.beam_size]]
        ending = [tokens for tokens in best[: options.beam_size] if tokens[-1] == sentence.eos_id]
        finished += [sentence.found(tokens) for tokens in ending]
        live = [tokens for tokens in best if tokens[-1] != sentence.eos_id][: options.beam_size]
    return finished


def expansions(sentence: Sentence, live: list[Tokens]) -> Iterator[tuple[float, Tokens]]:
    """Yields the expansions of hypotheses with their scores: in their order, best token first, lowest id of equals."""
    for tokens in live:
        score, forced = sentence.score(tokens), sentence.forced(tokens)
        log_probabilities = sentence.log_probabilities(tokens)
        ranked = sorted(range(len(log_probabilities)), key=lambda token_id: (-log_probabilities[token_id], token_id))
        for token_id in ranked if forced is None else [forced]:
            if forced is not None or log_probabilities[token_id] != -math.inf:
                yield score + log_probabilities[token_id], (*tokens, token_id)
