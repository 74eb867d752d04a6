"""Translates a list of texts that may have several source languages, one language after the other.

Texts without a word, such as emoji, and texts that are in the target language already come back unchanged.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from serve.errors import InvalidRequestError
from serve.observability.logs import RequestRecord
from serve.observability.usage import RequestUsage
from serve.registry.dispatcher import Dispatcher
from serve.translation.blank import is_blank
from serve.translation.request import TranslateRequest
from serve.translation.response import Translation

# Returns the languages among the candidates with their probabilities, the best first.
Detect = Callable[[str, Sequence[str]], list[tuple[str, float]]]
# Symbols, marks and invisible characters, as emoji have; and the characters of keycaps.
_SYMBOLS = frozenset({"So", "Sk", "Mn", "Me", "Cf", "Zs", "Cc"})
_TEXT_FIELD = re.compile(r"text\[(\d+)\]")
# An emoji is short.
_MOST_SYMBOLS = 64


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text and the code of its language."""

    text: str
    language: str


def is_wordless(text: str) -> bool:
    """Returns whether a text is blank, or a few symbols without a letter, a digit or a mark of punctuation."""
    return is_blank(text) or (
        len(text) <= _MOST_SYMBOLS and all(unicodedata.category(character) in _SYMBOLS for character in text)
    )


class Parts:
    """Translates a request in parts, one after the other, and records their sum. They do not compete for rows."""

    def __init__(self, dispatcher: Dispatcher, record: RequestRecord) -> None:
        self._dispatcher = dispatcher
        self._record = record
        self._usages: list[RequestUsage] = []
        self._sources: list[str] = []
        self._targets: list[str] = []

    async def translate(self, part: TranslateRequest) -> tuple[Translation, ...]:
        """Returns the translations of one part.

        Raises:
            ServiceError: if the translation fails.
        """
        response = await self._dispatcher.translate(part, self._record)
        self._usages.append(response.usage)
        self._sources += part.text
        self._targets += [translation.text for translation in response.translations]
        if len(self._usages) > 1:
            self._record.usage = RequestUsage.total(self._usages)
            self._record.source_texts, self._record.target_texts = self._sources, self._targets
        return response.translations


async def translate_texts(
    parts: Parts, texts: Sequence[SourceText], request: TranslateRequest
) -> list[Translation | None]:
    """Returns a translation per text; None: the text comes back unchanged.

    Args:
        parts: translates the texts of one language as one part.
        texts: of the request.
        request: all but its texts and its source language.

    Raises:
        ServiceError: if a translation fails; an error of a text has its number in `texts`.
    """
    groups: dict[str, list[int]] = {}
    for index, each in enumerate(texts):
        if each.language != request.target_language and not is_wordless(each.text):
            groups.setdefault(each.language, []).append(index)
    translations: list[Translation | None] = [None] * len(texts)
    for language, indices in groups.items():
        asked = replace(request, text=[texts[index].text for index in indices], source_language=language)
        try:
            found = await parts.translate(asked)
        except InvalidRequestError as error:
            raise _renumber(error, indices) from error
        for index, translation in zip(indices, found, strict=True):
            translations[index] = translation
    return translations


def _renumber(error: InvalidRequestError, indices: Sequence[int]) -> InvalidRequestError:
    found = _TEXT_FIELD.fullmatch(error.field)
    return error if found is None else InvalidRequestError(f"text[{indices[int(found[1])]}]", error.problem)
