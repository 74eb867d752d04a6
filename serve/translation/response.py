"""What a client gets: plain, frozen values that both interfaces write in their own form.

A value that was not asked for is None, and neither interface writes it. Made by `serve.translation.response` and
`serve.translation.translator`; this module knows neither protocol.

Turns what search found into what clients get: ids to text and pieces, hypotheses to translations and scores.

Called by `serve.translation.translator` for each text. Knows neither the scheduler nor any protocol.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

from model.tokenizer.tokenizer import TextTokenizer
from serve.scheduler.sequence import SequenceSpec
from serve.search.hypothesis import FinishReason, Hypothesis
from serve.translation.request import TargetVocabulary


@dataclass(frozen=True, slots=True)
class TokenScore:
    """A target token, as the vocabulary writes it, and its natural log-probability given all before it."""

    piece: str
    log_probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """One of the translations that were found.

    Attributes:
        score: sum of the natural log-probabilities of the target tokens, the end token included.
        normalized_score: what translations are compared by, with length and coverage penalty.
        target_tokens: length of the translation, the end token excluded.
        tokens: the score of every token, that of the end token last if it was reached.
        alignments: for each target token, the end token excluded, how much it looked at each source token.
    """

    text: str
    score: float
    normalized_score: float
    finish_reason: FinishReason
    target_tokens: int
    tokens: tuple[TokenScore, ...] | None = None
    alignments: tuple[tuple[float, ...], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation(Alternative):
    """The best translation of one text, and the others that were asked for.

    Attributes:
        source_tokens: length of the source, the end token and those that tell the direction included.
        alternatives: the others, best first.
        seed: what tokens were drawn with.
        cached: whether this is what an earlier request was answered; None: the server keeps no answers.
        sentences: how many the text was translated as.
        cut_sentences: how many sentences of the text were longer than the model reads, and were cut.
    """

    source_tokens: int
    alternatives: tuple[Alternative, ...] = ()
    seed: int | None = None
    cached: bool | None = None
    sentences: int = 1
    cut_sentences: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationScore:
    """How probable a given translation is.

    Attributes:
        score: sum of the natural log-probabilities of the target tokens, the end token included.
        tokens: the score of every token, the end token last.
        source_tokens: as of a translation.
        target_tokens: length of the translation, the end token excluded.
        cached: as of a translation.
    """

    score: float
    tokens: tuple[TokenScore, ...]
    source_tokens: int
    target_tokens: int
    cached: bool | None = None


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one request went; `queue` and `inference` are the longest of its texts."""

    tokenize_seconds: float
    queue_seconds: float
    inference_seconds: float
    total_seconds: float

    @property
    def by_name(self) -> dict[str, float]:
        """The times by the names of their attributes."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class Pivot:
    """A third language by way of which a request was translated, and the model that translated into it."""

    language: str
    model: str


@dataclass(frozen=True, slots=True)
class TranslationResponse:
    """One translation for each text of the request, in its order.

    Attributes:
        model: the one that gave the translations.
        pivot: what came before it, if there was no direction from the texts' language.
    """

    translations: tuple[Translation, ...]
    timings: Timings
    model: str = ""
    pivot: Pivot | None = None

    @property
    def results(self) -> tuple[Translation, ...]:
        """What there is one of for each text."""
        return self.translations


@dataclass(frozen=True, slots=True)
class ScoreResponse:
    """One score for each pair of the request, in its order, and the model that gave them."""

    scores: tuple[TranslationScore, ...]
    timings: Timings
    model: str = ""

    @property
    def results(self) -> tuple[TranslationScore, ...]:
        """What there is one of for each text."""
        return self.scores


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationDelta:
    """What one translation of a stream grew by. All deltas of a text in their order make up the text.

    Attributes:
        text_index: of the text in the request.
        text: what is new; empty only in the last delta of a text.
        target_tokens: length of the translation so far; the text of its last tokens may come with the next delta.
        finish_reason: why the translation ended; None: it goes on.
    """

    text_index: int
    text: str
    target_tokens: int
    finish_reason: FinishReason | None = None


Response = TranslationResponse | ScoreResponse


class Found(NamedTuple):
    """What was found for one text: the hypotheses, best first, at least one, and whether the result cache had them."""

    spec: SequenceSpec
    hypotheses: tuple[Hypothesis, ...]
    cached: bool | None


class ResponseBuilder:
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
            source_tokens=len(found.spec.source_ids),
            alternatives=tuple(Alternative(**other) for other in others),
            seed=found.spec.options.seed if found.spec.options.sampled else None,
            cached=found.cached,
        )

    def score(self, found: Found) -> TranslationScore:
        """Returns the answer to one pair, whose translation was forced."""
        best = found.hypotheses[0]
        return TranslationScore(
            score=best.score,
            tokens=self._tokens(best),
            source_tokens=len(found.spec.source_ids),
            target_tokens=len(best.target_ids),
            cached=found.cached,
        )

    def _facts(self, hypothesis: Hypothesis, *, token_scores: bool) -> dict[str, Any]:
        """Returns what an `Alternative` is made of."""
        alignments = hypothesis.alignments
        return {
            "text": self._tokenizer.decode(hypothesis.target_ids),
            "score": hypothesis.score,
            "normalized_score": hypothesis.normalized_score,
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
