"""What a client asks for and what it gets: plain, frozen values, valid from here on.

`RequestLimits.admit` is the one place where a request is validated. Both interfaces call it, and nothing behind it
checks again. This module knows neither protocol.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

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
        max_target_tokens: the longest translation of each text, without the end token.
        deadline_seconds: when the client stops waiting, on the clock of `time.monotonic`; None: it did not say.
    """

    texts: tuple[str, ...]
    max_target_tokens: int
    deadline_seconds: float | None


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one text.

    Attributes:
        score: sum of the natural log-probabilities of the target tokens, the end token included.
        source_tokens: length of the source, the end token included.
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
        source_language: ISO 639-1 code of the only language that the model reads.
        target_language: ISO 639-1 code of the only language that the model writes.
        max_texts: texts in one request.
        max_text_characters: length of one text, in Unicode code points.
        max_target_tokens: length of one translation, without the end token.
    """

    source_language: str
    target_language: str
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
        """Returns the request if every field is valid; an empty language means the model's.

        Raises:
            InvalidRequestError: naming the first field that is not.
        """
        if not 1 <= len(texts) <= self.max_texts:
            raise InvalidRequestError("text", f"{len(texts)} texts, expected 1 to {self.max_texts}")
        for index, text in enumerate(texts):
            self._check_text(f"text[{index}]", text)
        _check_language("source_language", source_language, self.source_language)
        _check_language("target_language", target_language, self.target_language)
        limit = self.max_target_tokens if max_target_tokens is None else max_target_tokens
        if not 1 <= limit <= self.max_target_tokens:
            raise InvalidRequestError("max_target_tokens", f"{limit}, expected 1 to {self.max_target_tokens}")
        return TranslationRequest(tuple(texts), limit, deadline_seconds)

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


def _check_language(field: str, asked: str, served: str) -> None:
    if asked not in ("", served):
        raise InvalidRequestError(field, f"{asked[:20]!r}, expected {served!r}")
