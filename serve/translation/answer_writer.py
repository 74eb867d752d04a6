"""Turns what search found into what clients get: ids to text and pieces, hypotheses to translations and scores.

Called by `serve.translation.translator` for each text. Knows neither the scheduler nor any protocol.
"""

from typing import Any, NamedTuple

from model.tokenizer.text_tokenizer import TextTokenizer
from serve.scheduler.sequence import Wish
from serve.search.hypothesis import FinishReason, Hypothesis
from serve.translation.response import Alternative, TokenScore, Translation, TranslationScore
from serve.translation.target_vocabulary import TargetVocabulary


class Found(NamedTuple):
    """What was found for one text: the hypotheses, best first, at least one, and whether the result cache had them."""

    wish: Wish
    hypotheses: tuple[Hypothesis, ...]
    cached: bool | None


class AnswerWriter:
    """Writes the answers of one served model."""

    def __init__(self, tokenizer: TextTokenizer, vocabulary: TargetVocabulary) -> None:
        """Keeps what it needs.

        Args:
            tokenizer: turns ids into text.
            vocabulary: turns ids into pieces.
        """
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary

    def translation(self, found: Found, *, token_scores: bool) -> Translation:
        """Returns the answer to one text.

        Args:
            found: for the text.
            token_scores: whether the client wants the score of every token.
        """
        best, *others = (self._facts(hypothesis, token_scores=token_scores) for hypothesis in found.hypotheses)
        return Translation(
            **best,
            source_tokens=len(found.wish.source_ids),
            alternatives=tuple(Alternative(**other) for other in others),
            seed=found.wish.options.seed if found.wish.options.sampled else None,
            cached=found.cached,
        )

    def score(self, found: Found) -> TranslationScore:
        """Returns the answer to one pair, whose translation was forced."""
        best = found.hypotheses[0]
        return TranslationScore(
            score=best.score,
            tokens=self._tokens(best),
            source_tokens=len(found.wish.source_ids),
            target_tokens=len(best.target_ids),
            cached=found.cached,
        )

    def _facts(self, hypothesis: Hypothesis, *, token_scores: bool) -> dict[str, Any]:
        """Returns what an `Alternative` is made of."""
        alignments = hypothesis.alignments
        return {
            "text": self._tokenizer.decode(hypothesis.target_ids),
            "score": hypothesis.score,
            "normalised_score": hypothesis.normalised_score,
            "finish_reason": hypothesis.finish_reason,
            "target_tokens": len(hypothesis.target_ids),
            "tokens": self._tokens(hypothesis) if token_scores else None,
            "alignments": None if alignments is None else tuple(map(tuple, alignments.tolist())),
        }

    def _tokens(self, hypothesis: Hypothesis) -> tuple[TokenScore, ...]:
        end = (self._vocabulary.eos_id,) if hypothesis.finish_reason is FinishReason.EOS else ()
        return tuple(
            TokenScore(self._vocabulary.pieces[token_id], score)
            for token_id, score in zip((*hypothesis.target_ids, *end), hypothesis.token_scores, strict=True)
        )
