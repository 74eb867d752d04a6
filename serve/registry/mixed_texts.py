"""Translates a list of texts that may have several source languages, one language after the other.

Texts without a letter, such as emoji, and texts that are in the target language already come back unchanged.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.observability.usage import RequestUsage, Timings
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.translation.detection import DetectedLanguage
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Translation, TranslationDelta, TranslationResponse, unchanged
from dragoman.serve.translation.segments import has_letter

Translate = Callable[[TranslateRequest, RequestRecord], Awaitable[TranslationResponse]]
Stream = Callable[[TranslateRequest, RequestRecord], AsyncGenerator[TranslationDelta | TranslationResponse]]
_TEXT_FIELD = re.compile(r"(text|target_prefix)\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text and the code of its language."""

    text: str
    language: str


def with_languages(texts: Sequence[str], languages: Sequence[DetectedLanguage]) -> list[SourceText]:
    """Returns texts with the languages that were found for them."""
    return [SourceText(text, language.code) for text, language in zip(texts, languages, strict=True)]


class Parts:
    """Translates a request in parts, one after the other, and records their sum. They do not compete for rows.

    Attributes:
        responses: to the parts so far.
    """

    def __init__(self, translate: Translate, record: RequestRecord) -> None:
        self.responses: list[TranslationResponse] = []
        self._translate = translate
        self.record = record
        self._sources: list[str] = []

    async def translate(self, part: TranslateRequest) -> tuple[Translation, ...]:
        """Returns the translations of one part; raises ServiceError if the translation fails."""
        response = await self._translate(part, self.record)
        self.add(part, response)
        return response.translations

    def add(self, part: TranslateRequest, response: TranslationResponse) -> None:
        """Records the response to a part."""
        self.responses.append(response)
        self._sources += part.text
        if len(self.responses) > 1:
            self.record.usage = RequestUsage.total([answer.usage for answer in self.responses])
            self.record.source_texts = self._sources
            self.record.target_texts = [
                translation.text for answer in self.responses for translation in answer.translations
            ]


async def translate_texts(
    parts: Parts, texts: Sequence[SourceText], request: TranslateRequest
) -> list[Translation | None]:
    """Returns a translation per text; None: the text comes back unchanged.

    Args:
        parts: translates the texts of one language as one part.
        request: all but its texts and its source language.

    Raises:
        ServiceError: if a translation fails; an error of a text has its number in `texts`.
    """
    translations: list[Translation | None] = [None] * len(texts)
    for part, indices in split_languages(texts, request):
        with renumbered_errors(indices):
            found = await parts.translate(part)
        for index, translation in zip(indices, found, strict=True):
            translations[index] = translation
    return translations


def split_languages(
    texts: Sequence[SourceText], request: TranslateRequest
) -> Iterator[tuple[TranslateRequest, list[int]]]:
    """Yields a request per language, and the indices of its texts; arguments as those of `translate_texts`."""
    groups: dict[str, list[int]] = {}
    for index, text in enumerate(texts):
        if text.language != request.target_language and has_letter(text.text):
            groups.setdefault(text.language, []).append(index)
    prefixes = request.target_prefix
    for language, indices in groups.items():
        chosen = [texts[index].text for index in indices]
        forced = [prefixes[index] for index in indices] if prefixes else ()
        yield request._replace(text=chosen, source_language=language, target_prefix=forced), indices


@contextmanager
def renumbered_errors(indices: Sequence[int]) -> Iterator[None]:
    """Gives the error of a text its number in the request, whose texts `indices` make up a part."""
    try:
        yield
    except InvalidRequestError as error:
        match = _TEXT_FIELD.fullmatch(error.field)
        if match is None:
            raise
        raise InvalidRequestError(f"{match[1]}[{indices[int(match[2])]}]", error.problem) from error


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

        Raises ServiceError if a translation fails, possibly after some deltas.
        """
        translations: list[Translation | None] = [None] * len(self.languages)
        groups = list(split_languages(self._texts, self.request))
        translated = {index for _, indices in groups for index in indices}
        for index, text in enumerate(self.request.text):
            if index not in translated:
                yield TranslationDelta(text_index=index, text=text, target_tokens=0, finish_reason=FinishReason.EOS)
        for part, indices in groups:
            with renumbered_errors(indices):
                async with aclosing(stream(part, parts.record)) as events:
                    async for event in events:
                        if isinstance(event, TranslationDelta):
                            yield replace(event, text_index=indices[event.text_index])
                        else:
                            parts.add(part, event)
            for index, translation in zip(indices, parts.responses[-1].translations, strict=True):
                translations[index] = translation
        yield self._complete(parts, translations)

    @property
    def _texts(self) -> list[SourceText]:
        return with_languages(self.request.text, self.languages)

    def _complete(self, parts: Parts, translations: Iterable[Translation | None]) -> TranslationResponse:
        """Returns the response to the request; its model and its pivot are those of the first language."""
        completed = tuple(
            replace(unchanged(text) if translation is None else translation, detected_language=language)
            for text, translation, language in zip(self.request.text, translations, self.languages, strict=True)
        )
        timings = Timings.total([response.timings for response in parts.responses])
        if not parts.responses:
            return TranslationResponse(completed, timings)
        return replace(parts.responses[0], translations=completed, timings=timings)
