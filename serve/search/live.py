"""Hypotheses that search still extends: one row of the model's state each."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.search.hypothesis import FinishReason, Hypothesis, coverage, normalized_score
from dragoman.serve.search.options import SearchOptions

# Attention of a token to the source, float32 [S].
Attention = NDArray[np.float32]


class Token(NamedTuple):
    """A token and its natural log-probability."""

    token_id: int
    score: float


@dataclass(frozen=True, slots=True)
class LiveHypothesis:
    """The beginning of a translation in a row of the model; random numbers follow from the number of the sample."""

    row: int
    number: int = 0
    tokens: tuple[Token, ...] = ()
    score: float = 0.0
    attention: tuple[Attention, ...] = ()

    @property
    def target_ids(self) -> tuple[int, ...]:
        """The tokens without their scores."""
        return tuple(token.token_id for token in self.tokens)

    def extended(self, token: Token, attention: Attention | None) -> Self:
        """Returns the hypothesis with one more token, and with the attention of the step that chose it."""
        kept = self.attention if attention is None else (*self.attention, attention)
        return replace(self, tokens=(*self.tokens, token), score=self.score + token.score, attention=kept)

    def finished(self, options: SearchOptions, source_tokens: int, eos_id: int) -> Hypothesis:
        """Returns the translation: complete if the last token is the end token, else cut."""
        ended = self.tokens[-1].token_id == eos_id
        target_tokens = len(self.tokens) - ended
        attention = np.array(self.attention, np.float32).reshape(-1, source_tokens)
        return Hypothesis(
            target_ids=self.target_ids[:target_tokens],
            score=self.score,
            normalized_score=normalized_score(
                self.score,
                len(self.tokens),
                coverage(attention.cumsum(axis=0)[-1]) if options.coverage_penalty > 0 else 0.0,
                length_penalty=options.length_penalty,
                coverage_penalty=options.coverage_penalty,
            ),
            finish_reason=FinishReason.EOS if ended else FinishReason.LENGTH,
            token_scores=tuple(token.score for token in self.tokens),
            alignments=attention[:target_tokens] if options.alignments else None,
        )
