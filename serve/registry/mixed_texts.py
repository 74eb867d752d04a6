"""Translates a list of texts that may have several source languages, one language after the other.

Texts without a letter, such as emoji, and texts that are in the target language already come back unchanged.
"""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.observability.logs import RequestRecord
from dragoman.serve.observability.usage import RequestUsage
from dragoman.serve.translation.blank import has_letter
from dragoman.serve.translation.request import TranslateRequest
from dragoman.serve.translation.response import Translation, TranslationDelta, TranslationResponse

Translate = Callable[[TranslateRequest, RequestRecord], Awaitable[TranslationResponse]]
Stream = Callable[[TranslateRequest, RequestRecord], AsyncGenerator[TranslationDelta | TranslationResponse]]
_TEXT_FIELD = re.compile(r"(text|target_prefix)\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text and the code of its language."""

    text: str
    language: str


class Parts:
    """Translates a request in parts, one after the other, and records their sum. They do not compete for rows.

    Attributes:
        responses: to the parts so far.
    """

    def __init__(self, translate: Translate, record: RequestRecord) -> None:
        self.responses: list[TranslationResponse] = []
        self._translate = translate
        self._record = record
        self._sources: list[str] = []

    async def translate(self, part: TranslateRequest) -> tuple[Translation, ...]:
        """Returns the translations of one part; raises ServiceError if the translation fails."""
        response = await self._translate(part, self._record)
        self.add(part, response)
        return response.translations

    async def stream(
        self, stream: Stream, part: TranslateRequest, indices: Sequence[int]
    ) -> AsyncGenerator[TranslationDelta]:
        """Yields the deltas of one part, whose texts have `indices` in the request.

        Raises:
            ServiceError: if the translation fails, possibly after some deltas.
        """
        async with aclosing(stream(part, self._record)) as events:
            async for event in events:
                if isinstance(event, TranslationDelta):
                    yield replace(event, text_index=indices[event.text_index])
                else:
                    self.add(part, event)

    def add(self, part: TranslateRequest, response: TranslationResponse) -> None:
        """Records the response to a part."""
        self.responses.append(response)
        self._sources += part.text
        if len(self.responses) > 1:
            self._record.usage = RequestUsage.total([answer.usage for answer in self.responses])
            self._record.source_texts = self._sources
            self._record.target_texts = [
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
