"""Responses as plain values, independent of protocols. A value that was not requested is None; interfaces omit it."""

from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.serve.errors import ServiceError
from dragoman.serve.memory.entry import Suggestion
from dragoman.serve.observability.usage import RequestUsage, Timings
from dragoman.serve.protect.alignment import Alignment
from dragoman.serve.protect.placeholders.check import Repair
from dragoman.serve.protect.terms.sentence_terms import AppliedTerm
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.translation.detection import DetectedLanguage


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A target piece and its natural log-probability given the pieces before it."""

    piece: str
    log_probability: float


@dataclass(slots=True, kw_only=True)
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


@dataclass(slots=True, kw_only=True)
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
        origin: "memory", or "mixed" if the model translated some of its sentences; None: it translated all.
        suggestions: entries of memories that are similar to the text, the most similar one first; None: there are none.
        context_used: whether the model read each sentence with context; None: none was given, or no sentence was left.
    """

    source_tokens: int
    alternatives: tuple[Alternative, ...] = ()
    seed: int | None = None
    cached: bool | None = None
    sentences: int = 1
    cut_sentences: int = 0
    detected_language: DetectedLanguage | None = None
    low_confidence: bool | None = None
    origin: str | None = None
    suggestions: tuple[Suggestion, ...] | None = None
    context_used: bool | None = None

    def compare(self, least_log_probability: float) -> None:
        """Sets the confidence. Every sentence has an end token."""
        self.low_confidence = self.score < least_log_probability * (self.target_tokens + self.sentences)


def unchanged(text: str) -> Translation:
    """Returns the translation of a text that stays as it is, without a sentence."""
    return Translation(
        text=text,
        score=0.0,
        normalized_score=0.0,
        finish_reason=FinishReason.EOS,
        target_tokens=0,
        source_tokens=0,
        sentences=0,
    )


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
class TargetError:
    """Why a target has no translations, as in a problem document.

    Attributes:
        status: that of HTTP.
        field, retry_after_seconds: as of a `ServiceError`.
    """

    status: int = 0
    detail: str = ""
    reason: str = ""
    field: str | None = None
    retry_after_seconds: int | None = None

    @classmethod
    def of(cls, error: ServiceError) -> "TargetError":
        """Returns the error of a target."""
        return cls(error.http_status, str(error), error.reason, error.field, error.retry_after_seconds)

    def __str__(self) -> str:
        return self.detail


@dataclass(slots=True)
class TargetTranslations:
    """The translations into one of several targets, or its error.

    Attributes:
        target_language: as the client names it.
        model, pivot: as of a `TranslationResponse`.
    """

    target_language: str
    translations: tuple[Translation, ...] = ()
    model: str = ""
    pivot: Pivot | None = None
    error: TargetError | None = None


@dataclass(slots=True)
class TranslationResponse:
    """One translation per text of the request, in its order.

    Attributes:
        model: name of the model, with a pivot that of the last hop; the dispatcher sets it.
        pivot: None: a direct translation.
        targets: in the order of the request, which has several; `translations` is then empty. None: it has one.
    """

    translations: tuple[Translation, ...]
    timings: Timings
    model: str = ""
    pivot: Pivot | None = None
    targets: tuple[TargetTranslations, ...] | None = None

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
