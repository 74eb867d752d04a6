"""Translates the texts of a request from detected languages.

A text in the target language, or without a word, comes back unchanged.
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from dragoman.serve.observability.usage import Timings
from dragoman.serve.registry.mixed_texts import (
    Parts,
    SourceText,
    Stream,
    renumbered_errors,
    split_languages,
    translate_texts,
)
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.translation.detection import DetectedLanguage
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Translation, TranslationDelta, TranslationResponse


@dataclass(frozen=True, slots=True)
class DetectedTexts:
    """A request and the language of each of its texts.

    Attributes:
        request: all but its source language.
        languages: one per text.
    """

    request: TranslateRequest
    languages: Sequence[DetectedLanguage]

    async def translate(self, parts: Parts) -> TranslationResponse:
        """Returns the translations of all texts; raises ServiceError if a translation fails."""
        return self._complete(parts, await translate_texts(parts, self._texts, self.request))

    async def stream(self, stream: Stream, parts: Parts) -> AsyncGenerator[TranslationDelta | TranslationResponse]:
        """Yields deltas of the translations, one language after the other, then the response of `translate`.

        Raises:
            ServiceError: if a translation fails, possibly after some deltas.
        """
        translations: list[Translation | None] = [None] * len(self.languages)
        groups = list(split_languages(self._texts, self.request))
        translated = {index for _, indices in groups for index in indices}
        for index, text in enumerate(self.request.text):
            if index not in translated:
                yield TranslationDelta(text_index=index, text=text, target_tokens=0, finish_reason=FinishReason.EOS)
        for part, indices in groups:
            with renumbered_errors(indices):
                async with aclosing(parts.stream(stream, part, indices)) as deltas:
                    async for delta in deltas:
                        yield delta
            for index, translation in zip(indices, parts.responses[-1].translations, strict=True):
                translations[index] = translation
        yield self._complete(parts, translations)

    @property
    def _texts(self) -> list[SourceText]:
        return [
            SourceText(text, language.code) for text, language in zip(self.request.text, self.languages, strict=True)
        ]

    def _complete(self, parts: Parts, translations: Iterable[Translation | None]) -> TranslationResponse:
        """Returns the response to the request; its model and its pivot are those of the first language."""
        completed = tuple(
            replace(_unchanged(text) if translation is None else translation, detected_language=language)
            for text, translation, language in zip(self.request.text, translations, self.languages, strict=True)
        )
        timings = Timings.total([response.timings for response in parts.responses])
        if not parts.responses:
            return TranslationResponse(completed, timings)
        return replace(parts.responses[0], translations=completed, timings=timings)


def _unchanged(text: str) -> Translation:
    return Translation(
        text=text,
        score=0.0,
        normalized_score=0.0,
        finish_reason=FinishReason.EOS,
        target_tokens=0,
        source_tokens=0,
        sentences=0,
    )
