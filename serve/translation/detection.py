"""Detects the languages of texts without holding up the event loop."""

import asyncio
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from dragoman.serve.languages import detector
from dragoman.serve.languages.detector import MAX_CHARACTERS, detect_language
from dragoman.serve.translation.large_work import SMALL_TEXT_BYTES, spread

_TAG = re.compile("<[^<>]*>")
# Characters of markup that are searched for text.
_MAX_MARKUP = 4 * MAX_CHARACTERS


@dataclass(frozen=True, slots=True)
class DetectedLanguage:
    """A language that a text may have.

    Attributes:
        code: ISO 639-1 code.
        confidence: probability among the candidates, 0 to 1; 0: the text gives no evidence.
    """

    code: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Detection:
    """The likely languages of one text, the best first; empty: the text gives no evidence."""

    languages: tuple[DetectedLanguage, ...]


@dataclass(frozen=True, slots=True)
class DetectResponse:
    """One detection per text of the request, in its order."""

    detections: tuple[Detection, ...]


async def detect_languages(
    texts: Sequence[str], candidates: Iterable[str], deadline_seconds: float, *, markup: bool = False
) -> list[Detection]:
    """Returns the likely languages of each text, independently of the others.

    Args:
        texts: of one request.
        candidates: ISO 639-1 codes.
        deadline_seconds: on the clock of `time.monotonic`.
        markup: the texts have tags, which are not read.

    Raises DeadlineExceededError if a part does not end before the deadline.
    """
    if not detector.is_loaded():
        await asyncio.to_thread(detector.load)
    detect = partial(_detect, frozenset(candidates), markup=markup)
    return await spread(partial(map, detect), texts, deadline_seconds, large=sum(map(len, texts)) > SMALL_TEXT_BYTES)


def best_guess(detection: Detection, candidates: Sequence[str]) -> DetectedLanguage:
    """Returns the best language; without evidence English, or the first candidate, with confidence 0."""
    if detection.languages:
        return detection.languages[0]
    return DetectedLanguage("en" if "en" in candidates else candidates[0], 0.0)


def _detect(candidates: frozenset[str], text: str, *, markup: bool) -> Detection:
    plain = _TAG.sub(" ", text[:_MAX_MARKUP]) if markup else text
    return Detection(tuple(DetectedLanguage(*item) for item in detect_language(plain, candidates)))
