"""Translating by way of a third language: what of a request is meant for which of the two translations, and one answer.

Pure functions; `serve.registry.dispatcher` runs the translations. Options that say how to search hold for both of them.
What belongs to the text that the client gets, its lengths, its prefix, its pieces and how many there are, is for the
last.
"""

import secrets
from dataclasses import replace

from serve.errors import InvalidRequestError
from serve.search.hypothesis import FinishReason
from serve.translation.fields import OPTIONS, SearchFields
from serve.translation.request import SEED_BITS, AskedTranslation
from serve.translation.response import Pivot, Timings, Translation, TranslationResponse

# They speak of the text that the client gets.
LAST_OPTIONS = (
    "hypotheses",
    "max_target_tokens",
    "min_target_tokens",
    "max_target_ratio",
    "min_target_ratio",
    "suppressed_tokens",
    "token_scores",
)


def split_options(options: SearchFields) -> tuple[SearchFields, SearchFields]:
    """Returns the options of the translation into the third language, and those of the translation from it.

    Both draw tokens with one seed, so that the one in the answer draws the same ones again.

    Raises:
        InvalidRequestError: if alignments are wanted, which would be with a text that the client does not know.
    """
    if options.alignments:
        raise InvalidRequestError(f"{OPTIONS}.alignments", "true, expected false where a pivot comes between")
    if options.sampled and options.seed is None:
        options = options.model_copy(update={"seed": secrets.randbits(SEED_BITS)})
    defaults = {name: SearchFields.model_fields[name].default for name in LAST_OPTIONS}
    return options.model_copy(update=defaults), options


def explain(error: InvalidRequestError, language: str) -> InvalidRequestError:
    """Returns the error for a client if a text of its became one that the second model does not take."""
    if not error.field.startswith("text["):
        return error
    return InvalidRequestError(error.field, f"its translation into {language}, the pivot: {error.problem}")


def join(first: TranslationResponse, last: TranslationResponse, pivot: Pivot) -> TranslationResponse:
    """Returns one answer of the two that came one after the other.

    Scores and target tokens are those of the last translation. The source is the client's; times add up; a translation
    of a text that was cut off is cut off itself.
    """
    translations = map(_join_texts, first.translations, last.translations)
    timings = _add(first.timings, last.timings)
    return replace(last, translations=tuple(translations), timings=timings, pivot=pivot)


def ask_last(asked: AskedTranslation, response: TranslationResponse) -> AskedTranslation:
    """Returns what to ask of the last model, given what it is to do for the client and the texts between.

    What was one sentence for the client stays one, so that it may have what only one sentence can have.
    """
    several = any(translation.sentences > 1 for translation in response.translations)
    texts = [translation.text for translation in response.translations]
    return replace(asked, texts=texts, split_sentences=asked.split_sentences and several)


def _join_texts(first: Translation, last: Translation) -> Translation:
    cut_off = first.finish_reason is FinishReason.LENGTH
    finish_reason = first.finish_reason if cut_off else last.finish_reason
    cached = None if last.cached is None else bool(first.cached and last.cached)
    return replace(
        last,
        source_tokens=first.source_tokens,
        finish_reason=finish_reason,
        cached=cached,
        sentences=first.sentences,
        cut_sentences=first.cut_sentences,
    )


def _add(first: Timings, last: Timings) -> Timings:
    return Timings(
        tokenize_seconds=first.tokenize_seconds + last.tokenize_seconds,
        queue_seconds=first.queue_seconds + last.queue_seconds,
        inference_seconds=first.inference_seconds + last.inference_seconds,
        total_seconds=first.total_seconds + last.total_seconds,
    )
