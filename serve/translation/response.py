"""Responses as plain, frozen values, and how hypotheses become responses.

A value that was not requested is None; interfaces omit it. Independent of protocols.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.observability.usage import RequestUsage, Timings
from dragoman.serve.protect.alignment import ALIGN, Alignment
from dragoman.serve.protect.placeholders.check import Repair
from dragoman.serve.protect.terms.sentence_terms import AppliedTerm
from dragoman.serve.scheduler.sequence import SequenceSpec
from dragoman.serve.search.hypothesis import FinishReason, Hypothesis
from dragoman.serve.search.option_table import AlignmentUnit
from dragoman.serve.translation.attention import PairAttention
from dragoman.serve.translation.detection import DetectedLanguage
from dragoman.serve.translation.request import TextRequest
from dragoman.serve.translation.search_plan import SearchPlan
from dragoman.serve.translation.text_model import TextModel


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A target piece and its natural log-probability given the pieces before it."""

    piece: str
    log_probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One translation of a text.

    Attributes:
        score: sum of the natural log-probabilities of the target tokens, the end token included.
        normalized_score: score with length and coverage penalty, which ranks translations.
        target_tokens: length of the translation, the end token excluded.
        tokens: score per token, the end token last if it was reached.
        alignments: one per sentence, in their order.
        repairs: placeholders that the model lost; None: no placeholders were requested, or none was lost.
        terms: terms of the text, in its order; None: no terms were given, or the text has none.
    """

    text: str
    score: float
    normalized_score: float
    finish_reason: FinishReason
    target_tokens: int
    tokens: tuple[TokenScore, ...] | None = None
    alignments: tuple[Alignment, ...] | None = None
    repairs: tuple[Repair, ...] | None = None
    terms: tuple[AppliedTerm, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation(Alternative):
    """The best translation of one text.

    Attributes:
        source_tokens: length of the source, direction prefix and end token included.
        alternatives: the other requested hypotheses, best first.
        seed: of the sampling.
        cached: whether the result cache had the translation; None: no cache.
        sentences: number of sentences of the text.
        cut_sentences: number of sentences that exceeded the model's limit and were cut.
        detected_language: language of the text; None: the client named it.
        low_confidence: whether the mean log-probability per token is far below that of the model's samples; None: the
            bundle does not state it.
    """

    source_tokens: int
    alternatives: tuple[Alternative, ...] = ()
    seed: int | None = None
    cached: bool | None = None
    sentences: int = 1
    cut_sentences: int = 0
    detected_language: DetectedLanguage | None = None
    low_confidence: bool | None = None

    def compared(self, least_log_probability: float) -> "Translation":
        """Returns the translation with its confidence. Every sentence has an end token."""
        tokens = self.target_tokens + self.sentences
        return replace(self, low_confidence=_is_unlikely(self.score, tokens, least_log_probability))


def _is_unlikely(score: float, tokens: int, least_log_probability: float) -> bool:
    return score < least_log_probability * tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationScore:
    """The score of a given translation.

    Attributes:
        score: sum of the natural log-probabilities of the target tokens, the end token included.
        tokens: score per token, the end token last.
        target_tokens: length of the translation, the end token excluded.
        source_tokens, cached: as of a `Translation`.
    """

    score: float
    tokens: tuple[TokenScore, ...]
    source_tokens: int
    target_tokens: int
    cached: bool | None = None


@dataclass(frozen=True, slots=True)
class Pivot:
    """The pivot language and the model that translated into it."""

    language: str
    model: str


@dataclass(frozen=True, slots=True)
class TranslationResponse:
    """One translation per text of the request, in its order.

    Attributes:
        model: name of the model, with a pivot that of the last hop.
        pivot: None: a direct translation.
    """

    translations: tuple[Translation, ...]
    timings: Timings
    model: str = ""
    pivot: Pivot | None = None

    @property
    def usage(self) -> RequestUsage:
        """Counts and times for logs, traces and metrics."""
        return _usage(self.translations, self.timings)


@dataclass(frozen=True, slots=True)
class ScoreResponse:
    """One score per pair of the request, in its order."""

    scores: tuple[TranslationScore, ...]
    timings: Timings
    model: str = ""

    @property
    def usage(self) -> RequestUsage:
        """Counts and times for logs, traces and metrics."""
        return _usage(self.scores, self.timings)


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationDelta:
    """The growth of one translation in a stream. The deltas of a text make up its translation.

    Attributes:
        text_index: index of the text in the request.
        text: new text; empty only in the last delta of a text.
        target_tokens: length of the translation so far; the text of its last tokens may follow in the next delta.
        finish_reason: None: the translation continues.
    """

    text_index: int
    text: str
    target_tokens: int
    finish_reason: FinishReason | None = None


def _usage(results: Sequence[Translation] | Sequence[TranslationScore], timings: Timings) -> RequestUsage:
    source_tokens = target_tokens = 0
    for result in results:
        source_tokens += result.source_tokens
        target_tokens += result.target_tokens
    return RequestUsage(len(results), source_tokens, target_tokens, timings)


class SentenceResult(NamedTuple):
    """The result of the search for one sentence.

    Attributes:
        sentence: with what its translation must have.
        spec: of its sequence; with alignments also if only its tags, placeholders or terms need them.
        hypotheses: at least one, best first.
        cached: as of a `Translation`.
        repairs: of the best one, by decoding again.
        decoded: terms that the best one has by decoding again, by their index.
    """

    sentence: TextRequest
    spec: SequenceSpec
    hypotheses: Sequence[Hypothesis]
    cached: bool | None
    repairs: tuple[Repair, ...] = ()
    decoded: frozenset[int] = frozenset()


class ResponseBuilder:
    """Converts hypotheses of one model into translations and scores."""

    def __init__(self, model: TextModel) -> None:
        self._tokenizer = model.tokenizer
        self._vocabulary = model.vocabulary
        self._suffix_tokens = len(model.source_suffix)
        self._least_log_probability = model.least_log_probability

    def translation(self, result: SentenceResult, plan: SearchPlan) -> Translation:
        """Returns the translation of one sentence with what the plan asks for."""
        spec, least = result.spec, self._least_log_probability
        first, *others = result.hypotheses
        best = self._facts(result, first, plan, result.decoded)
        return Translation(
            **best,
            source_tokens=len(spec.source_ids),
            alternatives=tuple(Alternative(**self._facts(result, other, plan)) for other in others) if others else (),
            seed=spec.options.seed if spec.options.sampled else None,
            cached=result.cached,
            repairs=result.repairs or None,
            low_confidence=None if least is None else _is_unlikely(first.score, len(first.target_ids) + 1, least),
        )

    def score(self, result: SentenceResult) -> TranslationScore:
        """Returns the score of one forced translation."""
        best = result.hypotheses[0]
        return TranslationScore(
            score=best.score,
            tokens=self._tokens(best),
            source_tokens=len(result.spec.source_ids),
            target_tokens=len(best.target_ids),
            cached=result.cached,
        )

    def attention(self, sentence: str, spec: SequenceSpec, attention: NDArray[np.float32]) -> PairAttention:
        """Returns the attention of a forced translation, given that of its tokens, [T, S]."""
        target_ids = spec.options.target_prefix[spec.options.start_tokens :]
        translation = self._tokenizer.decode(target_ids)
        return PairAttention(
            translation=translation,
            alignment=self._aligned(sentence, translation, target_ids, attention, "words"),
            source_tokens=len(spec.source_ids),
            target_tokens=len(target_ids),
        )

    def draft(self, sentence: str, hypothesis: Hypothesis) -> tuple[str, Alignment]:
        """Returns the text of a hypothesis and its alignment by tokens."""
        text = self._tokenizer.decode(hypothesis.target_ids)
        return text, self._alignment(sentence, text, hypothesis, "tokens") or Alignment((), (), (), ())

    def _facts(
        self, result: SentenceResult, hypothesis: Hypothesis, plan: SearchPlan, decoded: frozenset[int] = frozenset()
    ) -> dict[str, Any]:
        """Returns keyword arguments of an `Alternative`."""
        sentence, text = result.sentence, self._tokenizer.decode(hypothesis.target_ids)
        alignment = self._alignment(sentence.text, text, hypothesis, plan.alignments or "tokens")
        terms: tuple[AppliedTerm, ...] | None = None
        if sentence.terms is not None and alignment is not None:
            text, alignment, terms = sentence.terms.place(text, alignment, decoded)
        if plan.alignments is None and sentence.markup is None:
            alignment = None
        return {
            "text": text,
            "score": hypothesis.score,
            "normalized_score": hypothesis.normalized_score,
            "finish_reason": hypothesis.finish_reason,
            "target_tokens": len(hypothesis.target_ids),
            "tokens": self._tokens(hypothesis) if plan.token_scores else None,
            "alignments": None if alignment is None else (alignment,),
            "terms": terms or None,
        }

    def _alignment(self, text: str, translation: str, hypothesis: Hypothesis, unit: AlignmentUnit) -> Alignment | None:
        if hypothesis.alignments is None:
            return None
        return self._aligned(text, translation, hypothesis.target_ids, hypothesis.alignments, unit)

    def _aligned(
        self,
        text: str,
        translation: str,
        target_ids: Sequence[int],
        attention: NDArray[np.float32],
        unit: AlignmentUnit,
    ) -> Alignment:
        """Returns attention weights, [T, S] with special tokens before and after those of the text, as an alignment."""
        source = self._tokenizer.encode_offsets(text)
        target = self._tokenizer.decode_offsets(target_ids)
        end = attention.shape[1] - self._suffix_tokens
        return ALIGN[unit](text, source, translation, target, attention[:, end - len(source) : end])

    def _tokens(self, hypothesis: Hypothesis) -> tuple[TokenScore, ...]:
        end = (self._vocabulary.eos_id,) if hypothesis.finish_reason is FinishReason.EOS else ()
        return tuple(
            TokenScore(self._vocabulary.pieces[token_id], score)
            for token_id, score in zip((*hypothesis.target_ids, *end), hypothesis.token_scores, strict=True)
        )
