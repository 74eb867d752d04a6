"""Renders: hypotheses become translations of sentences, and these the translations of their texts."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.protect.alignment import ALIGN, Alignment
from dragoman.serve.protect.placeholders.check import Repair, joined_repairs
from dragoman.serve.protect.terms.sentence_terms import join_terms
from dragoman.serve.search.hypothesis import FinishReason, Hypothesis
from dragoman.serve.search.option_table import AlignmentUnit
from dragoman.serve.translation.attention import PairAttention
from dragoman.serve.translation.job import Job, SegmentedText, Sentence
from dragoman.serve.translation.response import Alternative, TokenScore, Translation, TranslationScore, unchanged
from dragoman.serve.translation.segments import TextModel

_NO_ALIGNMENT = Alignment((), (), (), ())


class TextParts(NamedTuple):
    """A text in sentences, with the translation of each."""

    cut: SegmentedText
    sentences: tuple[Sentence, ...]
    translations: tuple[Translation, ...]

    @classmethod
    def of(cls, job: Job, translations: Iterable[Translation]) -> "list[TextParts]":
        """Returns the parts of each text, given the translations of all sentences."""
        sentences, left = iter(job.sentences), iter(translations)
        counts = [(cut, len(cut.sentences)) for cut in job.cuts]
        return [cls(cut, tuple(islice(sentences, count)), tuple(islice(left, count))) for cut, count in counts]


class Renderer:
    """Renders the hypotheses of one model."""

    def __init__(self, model: TextModel) -> None:
        self._tokenizer = model.tokenizer
        self._vocabulary = model.vocabulary
        self._suffix_tokens = len(model.source_suffix)
        self._least_log_probability = model.least_log_probability

    def translations(self, job: Job, sentences: Sequence[Sentence]) -> list[Translation]:
        """Returns the translation of each sentence with what the plan asks for."""
        texts = self._tokenizer.decode_all([sentence.hypotheses[0].target_ids for sentence in sentences])
        return [self._translation(job, *pair) for pair in zip(sentences, texts, strict=True)]

    def _translation(self, job: Job, sentence: Sentence, text: str) -> Translation:
        best, options = sentence.hypotheses[0], sentence.options
        translation = Translation(
            text=text,
            score=best.score,
            normalized_score=best.normalized_score,
            finish_reason=best.finish_reason,
            target_tokens=len(best.target_ids),
            source_tokens=len(sentence.source_ids),
            seed=options.seed if options.temperature else None,
            cached=sentence.cached,
            repairs=sentence.repairs or None,
            context_used=bool(sentence.separators) if job.context else None,
        )
        if self._least_log_probability is not None:
            translation.compare(self._least_log_probability)
        if best.alignments is not None or job.fields.token_scores:
            self._add_details(job, sentence, best, translation, sentence.decoded)
        if len(sentence.hypotheses) > 1:
            others = sentence.hypotheses[1:]
            translation.alternatives = tuple([self.alternative(job, sentence, other) for other in others])
        return translation

    def joined(self, text: TextParts) -> Translation:
        """Returns the translation of a text, whose parts it takes over."""
        cut, sentences, translations = text
        if cut.plain:
            return translations[0]
        if not translations:
            joined = unchanged(cut.gaps[0])
        else:
            joined = translations[0] if len(translations) == 1 else _combined(cut, translations)
            for alternative in joined.alternatives:
                _join(alternative, cut, sentences, [alternative])
            _join(joined, cut, sentences, translations)
        if self._least_log_probability is not None:
            joined.compare(self._least_log_probability)
        return joined

    def alternative(
        self, job: Job, sentence: Sentence, hypothesis: Hypothesis, decoded: frozenset[int] = frozenset()
    ) -> Alternative:
        """Returns the translation of a hypothesis of a sentence; `decoded` as of the sentence."""
        alternative = Alternative(
            text=self._tokenizer.decode(hypothesis.target_ids),
            score=hypothesis.score,
            normalized_score=hypothesis.normalized_score,
            finish_reason=hypothesis.finish_reason,
            target_tokens=len(hypothesis.target_ids),
        )
        self._add_details(job, sentence, hypothesis, alternative, decoded)
        return alternative

    def score(self, sentence: Sentence) -> TranslationScore:
        """Returns the score of one forced translation."""
        best = sentence.hypotheses[0]
        return TranslationScore(
            score=best.score,
            tokens=self._tokens(best),
            source_tokens=len(sentence.source_ids),
            target_tokens=len(best.target_ids),
            cached=sentence.cached,
        )

    def attention(self, sentence: Sentence, attention: NDArray[np.float32]) -> PairAttention:
        """Returns the attention of a forced translation, given that of its tokens, [T, S]."""
        options = sentence.options
        target_ids = options.target_prefix[options.start_tokens :]
        translation = self._tokenizer.decode(target_ids)
        return PairAttention(
            translation=translation,
            alignment=self._aligned(sentence.text, translation, target_ids, attention, "words"),
            source_tokens=len(sentence.source_ids),
            target_tokens=len(target_ids),
        )

    def draft(self, sentence: Sentence, hypothesis: Hypothesis) -> tuple[str, Alignment]:
        """Returns the text of a hypothesis and its alignment by tokens."""
        text, attention = self._tokenizer.decode(hypothesis.target_ids), hypothesis.alignments
        if attention is None:
            return text, _NO_ALIGNMENT
        return text, self._aligned(sentence.text, text, hypothesis.target_ids, attention, "tokens")

    def _add_details(
        self, job: Job, sentence: Sentence, hypothesis: Hypothesis, rendered: Alternative, decoded: frozenset[int]
    ) -> None:
        """Adds scores of tokens, the alignment and terms to a translation, if it has them."""
        fields, attention = job.fields, hypothesis.alignments
        if fields.token_scores:
            rendered.tokens = self._tokens(hypothesis)
        if attention is None:
            return
        unit = fields.alignments or "tokens"
        alignment = self._aligned(sentence.text, rendered.text, hypothesis.target_ids, attention, unit)
        if sentence.terms is not None:
            rendered.text, alignment, terms = sentence.terms.place(rendered.text, alignment, decoded)
            rendered.terms = terms or None
        if fields.alignments is not None or sentence.markup is not None:
            rendered.alignments = (alignment,)

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


def _combined(cut: SegmentedText, translations: Sequence[Translation]) -> Translation:
    """Returns the translation of a text of several sentences, except for what depends on its text."""
    first = translations[0]
    tokens = [translation.tokens for translation in translations if translation.tokens is not None]
    cut_off = any(translation.finish_reason is FinishReason.LENGTH for translation in translations)
    return replace(
        first,
        score=sum(translation.score for translation in translations),
        normalized_score=sum(translation.normalized_score for translation in translations) / len(translations),
        finish_reason=FinishReason.LENGTH if cut_off else FinishReason.EOS,
        target_tokens=sum(translation.target_tokens for translation in translations),
        source_tokens=sum(translation.source_tokens for translation in translations),
        tokens=tuple(chain.from_iterable(tokens)) if tokens else None,
        cached=None if first.cached is None else all(translation.cached for translation in translations),
        context_used=first.context_used and all(translation.context_used for translation in translations),
        sentences=len(translations),
        cut_sentences=cut.cut_sentences,
    )


def _join(
    joined: Alternative, cut: SegmentedText, sentences: Sequence[Sentence], translations: Sequence[Alternative]
) -> None:
    """Gives a translation the text of those of its sentences, with white space and markup, and what depends on it."""
    markup = [sentence.markup for sentence in sentences if sentence.markup is not None]
    alignments, repairs = None, list[Repair]()
    texts = [translation.text for translation in translations]
    if markup:
        rendered = [own.render(translation) for own, translation in zip(markup, translations, strict=True)]
        texts = [text for text, _ in rendered]
        for translation, (_, more) in zip(translations, rendered, strict=True):
            repairs += joined_repairs(translation.repairs or (), more)
    else:
        alignments = _join_alignments(cut, translations)
    joined.terms = join_terms(translation.terms for translation in translations)
    joined.text, joined.alignments, joined.repairs = cut.join(texts), alignments, tuple(repairs) or None


def _join_alignments(cut: SegmentedText, translations: Sequence[Alternative]) -> tuple[Alignment, ...] | None:
    """Returns the alignments of one translation per sentence, inside the text and the joined translation."""
    if cut.recalled:
        return None  # gaps of the text are not those of the translation
    joined = list[Alignment]()
    target = 0
    for gap, (source, _), translation in zip(cut.gaps, cut.spans, translations, strict=False):
        if translation.alignments is None:
            return None
        target += len(gap)
        joined += (alignment.shifted(source, target) for alignment in translation.alignments)
        target += len(translation.text)
    return tuple(joined)
