"""The texts of one request as passages: the request for all their sentences, and one answer for each text again.

Pure functions of requests and answers; called by `serve.translation.passage_translator`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

from serve.errors import InvalidRequestError
from serve.search.hypothesis import FinishReason
from serve.translation.passage import Passage
from serve.translation.passage_stream import PassageStream
from serve.translation.request import TextRequest, TranslationRequest
from serve.translation.response import Translation, TranslationDelta, TranslationResponse
from serve.translation.search_fields import OPTIONS
from serve.translation.search_limits import SearchPlan


def split_text(request: TranslationRequest, text: TextRequest, fits: Callable[[str], bool]) -> Passage:
    """Returns one text of a request as the request wants it cut.

    Raises:
        InvalidRequestError: if it is several sentences, and the request wants what only one sentence can have.
    """
    if not request.split_sentences:
        return Passage.whole(text.text)
    passage = Passage.of(text.text, request.source_language, fits)
    if len(passage.sentences) > 1:
        _check_several(request.plan, text, len(passage.sentences))
    return passage


@dataclass(frozen=True, slots=True)
class Passages:
    """One passage for each text of a request.

    Attributes:
        request: the same request for the sentences of all passages, one after the other, as texts of their own.
    """

    passages: tuple[Passage, ...]
    request: TranslationRequest

    @classmethod
    def of(cls, request: TranslationRequest, passages: Sequence[Passage]) -> "Passages":
        """Makes the request for the sentences.

        Args:
            request: for the texts.
            passages: each text as `split_text` cuts it.
        """
        # The usual request is one sentence, which needs no other; so does its answer below.
        if not all(passage.plain for passage in passages):
            texts = tuple(
                replace(text, text=sentence)
                for text, passage in zip(request.texts, passages, strict=True)
                for sentence in passage.sentences
            )
            request = replace(request, texts=texts)
        return cls(tuple(passages), request)

    def join(self, response: TranslationResponse) -> TranslationResponse:
        """Returns the answer for the texts, given that for the sentences."""
        if all(passage.plain for passage in self.passages):
            return response
        translations = iter(response.translations)
        joined = (_join(passage, tuple(islice(translations, len(passage.sentences)))) for passage in self.passages)
        return replace(response, translations=tuple(joined))

    def streams(self) -> list[Callable[[TranslationDelta], list[TranslationDelta]]]:
        """Returns for each sentence what turns its deltas into those of its text."""
        streams = [PassageStream(index, passage) for index, passage in enumerate(self.passages)]
        return list(chain.from_iterable(stream.listeners() for stream in streams))


def _check_several(plan: SearchPlan, text: TextRequest, sentences: int) -> None:
    problem = f"{text.text_field} has {sentences} sentences, expected one, or split_sentences to be false"
    if text.target_prefix:
        raise InvalidRequestError(text.prefix_field, problem)
    if plan.options.hypotheses > 1:
        raise InvalidRequestError(f"{OPTIONS}.hypotheses", f"{plan.options.hypotheses}: {problem}")
    if plan.options.alignments:
        raise InvalidRequestError(f"{OPTIONS}.alignments", f"true: {problem}")


def _join(passage: Passage, translations: Sequence[Translation]) -> Translation:
    text = passage.join([translation.text for translation in translations])
    first, *others = translations
    if not others:
        alternatives = (replace(each, text=passage.join([each.text])) for each in first.alternatives)
        return replace(first, text=text, alternatives=tuple(alternatives))
    tokens = [translation.tokens for translation in translations if translation.tokens is not None]
    cut_off = any(translation.finish_reason is FinishReason.LENGTH for translation in translations)
    return replace(
        first,
        text=text,
        score=sum(translation.score for translation in translations),
        normalised_score=sum(translation.normalised_score for translation in translations) / len(translations),
        finish_reason=FinishReason.LENGTH if cut_off else FinishReason.EOS,
        target_tokens=sum(translation.target_tokens for translation in translations),
        source_tokens=sum(translation.source_tokens for translation in translations),
        tokens=tuple(chain.from_iterable(tokens)) if tokens else None,
        cached=None if first.cached is None else all(translation.cached for translation in translations),
        sentences=len(translations),
        cut_sentences=passage.cut_sentences,
    )
