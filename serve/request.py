"""What a client asks for and what it gets: plain, frozen values, valid from here on.

`RequestLimits.admit` is the one place where a request is validated. Both interfaces call it, and nothing behind it
checks again. This module knows neither protocol.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from export.manifest import BundleDirection
from serve.errors import InvalidRequestError


class FinishReason(StrEnum):
    """Why a translation ended."""

    EOS = "eos"
    LENGTH = "length"


@dataclass(frozen=True, slots=True)
class TranslationRequest:
    """A valid request.

    Attributes:
        texts: the texts to translate, one sentence each.
        source_prefix: tokens before the source of each text, which tell the model what to translate into.
        max_target_tokens: the longest translation of each text, without the end token.
        deadline_seconds: when the client stops waiting, on the clock of `time.monotonic`; None: it did not say.
    """

    texts: tuple[str, ...]
    source_prefix: tuple[int, ...]
    max_target_tokens: int
    deadline_seconds: float | None


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one text.

    Attributes:
        score: sum of the natural log-probabilities of the target tokens, the end token included.
        source_tokens: length of the source, the end token and those that tell the direction included.
        target_tokens: length of the translation, the end token excluded.
    """

    text: str
    score: float
    finish_reason: FinishReason
    source_tokens: int
    target_tokens: int


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time of one request went; `queue` and `inference` are the longest of its texts."""

    tokenize_seconds: float
    queue_seconds: float
    inference_seconds: float
    total_seconds: float


@dataclass(frozen=True, slots=True)
class TranslationResponse:
    """One translation for each text of the request, in its order."""

    translations: tuple[Translation, ...]
    timings: Timings


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What the served model and the operator allow.

    Attributes:
        directions: what the model translates; at least one.
        max_texts: texts in one request.
        max_text_characters: length of one text, in Unicode code points.
        max_target_tokens: length of one translation, without the end token.
    """

    directions: tuple[BundleDirection, ...]
    max_texts: int
    max_text_characters: int
    max_target_tokens: int

    def admit(
        self,
        *,
        texts: Sequence[str],
        source_language: str,
        target_language: str,
        max_target_tokens: int | None,
        deadline_seconds: float | None,
    ) -> TranslationRequest:
        """Returns the request if every field is valid.

        An empty language is the model's if it has one direction only; if it has several, the source language may be
        empty where one direction alone has the target language.

        Raises:
            InvalidRequestError: naming the first field that is not.
        """
        if not 1 <= len(texts) <= self.max_texts:
            raise InvalidRequestError("text", f"{len(texts)} texts, expected 1 to {self.max_texts}")
        for index, text in enumerate(texts):
            self._check_text(f"text[{index}]", text)
        direction = self._choose_direction(source_language, target_language)
        limit = self.max_target_tokens if max_target_tokens is None else max_target_tokens
        if not 1 <= limit <= self.max_target_tokens:
            raise InvalidRequestError("max_target_tokens", f"{limit}, expected 1 to {self.max_target_tokens}")
        return TranslationRequest(tuple(texts), direction.source_prefix, limit, deadline_seconds)

    def _choose_direction(self, source: str, target: str) -> BundleDirection:
        into = [direction for direction in self.directions if target in ("", direction.target)]
        if not into or (not target and len(self.directions) > 1):
            raise _wrong_language("target", target, self.directions)
        matching = [direction for direction in into if source in ("", direction.source)]
        if len(matching) != 1:
            raise _wrong_language("source", source, into)
        return matching[0]

    def _check_text(self, field: str, text: str) -> None:
        if len(text) > self.max_text_characters:
            problem = f"{len(text)} characters, expected at most {self.max_text_characters}"
            raise InvalidRequestError(field, problem)
        if not text.strip():
            raise InvalidRequestError(field, "blank, expected a sentence")
        if "\0" in text:
            raise InvalidRequestError(field, f"U+0000 at character {text.index(chr(0))}, expected text without it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            surrogate = f"U+{ord(text[error.start]):04X}"
            problem = f"lone surrogate {surrogate} at character {error.start}, expected valid Unicode"
            raise InvalidRequestError(field, problem) from error


def _wrong_language(side: str, language: str, directions: Sequence[BundleDirection]) -> InvalidRequestError:
    expected = ", ".join(map(str, directions))
    return InvalidRequestError(f"{side}_language", f"{language[:20]!r}, expected the {side} of one of {expected}")
