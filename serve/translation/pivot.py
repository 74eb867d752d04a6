"""Pivot translation: splits a request into two hops through a third language and joins the two responses.

Options of the search apply to both hops. The prefix applies to the last hop, and so do the options of the final text,
which the table of options marks. Pure functions.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.observability.usage import Timings
from dragoman.serve.protect.alignment import Alignment, compose
from dragoman.serve.search.hypothesis import FinishReason
from dragoman.serve.search.option_table import ROWS
from dragoman.serve.translation.fields import SearchFields
from dragoman.serve.translation.request import SEED_BITS, TranslateRequest
from dragoman.serve.translation.response import Alternative, Pivot, Translation, TranslationResponse

LAST_OPTIONS = tuple(name for name, option in ROWS.items() if option.last_hop)


def split_options(options: SearchFields) -> tuple[SearchFields, SearchFields]:
    """Returns the options of the first and of the last hop.

    Both hops sample with one seed, so that the seed in the response reproduces both.
    """
    if options.sampled and options.seed is None:
        options = options.model_copy(update={"seed": secrets.randbits(SEED_BITS)})
    defaults = {name: SearchFields.model_fields[name].default for name in LAST_OPTIONS}
    return options.model_copy(update=defaults), options


@contextmanager
def explained(language: str) -> Iterator[None]:
    """Names the pivot language in the error of a block in which the second model refuses a pivot text."""
    try:
        yield
    except InvalidRequestError as error:
        if not error.field.startswith("text["):
            raise
        problem = f"translation into the pivot language {language}: {error.problem}"
        raise InvalidRequestError(error.field, problem) from error


def join(first: TranslationResponse, last: TranslationResponse, pivot: Pivot) -> TranslationResponse:
    """Returns the response to the client.

    Scores and target tokens are those of the last hop, source tokens those of the first; times add up. A translation
    has finish reason `length`, and low confidence, if either hop had.
    """
    translations = map(_join_texts, first.translations, last.translations)
    timings = Timings.total([first.timings, last.timings])
    return replace(last, translations=tuple(translations), timings=timings, pivot=pivot)


def ask_last(request: TranslateRequest, response: TranslationResponse) -> TranslateRequest:
    """Returns the request to the last model for the translations into the pivot language.

    A sentence of the client stays one sentence, so that options for a single sentence remain valid.
    """
    several = any(translation.sentences > 1 for translation in response.translations)
    texts = [translation.text for translation in response.translations]
    return request._replace(text=texts, split_sentences=request.split_sentences and several)


def _join_texts(first: Translation, last: Translation) -> Translation:
    cut_off = first.finish_reason is FinishReason.LENGTH
    finish_reason = first.finish_reason if cut_off else last.finish_reason
    cached = None if last.cached is None else bool(first.cached and last.cached)
    return replace(
        last,
        source_tokens=first.source_tokens,
        alignments=_compose(first, last),
        repairs=((*(first.repairs or ()), *(last.repairs or ())) or None),
        alternatives=tuple(
            replace(alternative, alignments=_compose(first, alternative)) for alternative in last.alternatives
        ),
        finish_reason=finish_reason,
        cached=cached,
        low_confidence=_either(first.low_confidence, last.low_confidence),
        sentences=first.sentences,
        suggestions=first.suggestions,
        cut_sentences=first.cut_sentences,
        context_used=first.context_used,
    )


def _either(first: bool | None, last: bool | None) -> bool | None:
    return None if first is None and last is None else bool(first or last)


def _compose(first: Translation, last: Alternative) -> tuple[Alignment, ...] | None:
    return None if first.alignments is None or last.alignments is None else compose(first.alignments, last.alignments)
