"""The options of translations and of translators, typed for callers."""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from dragoman.serve.local.errors import typed_errors
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.search.option_table import AlignmentUnit
from dragoman.serve.translation.fields import DEFAULT_SEARCH, SearchFields
from dragoman.serve.translation.request import TranslateRequest


class RequestFields(TypedDict, total=False):
    """The fields of a request for a translation; absent keys have the defaults of a server.

    Keys:
        source_language: ISO 639-1 code, or "auto": detected per text.
        target_language: ISO 639-1 code.
        options: search options; absent: the search of the bundle.
        model: name of the model; absent: the first one with the direction.
        allow_pivot: translate through a third language if no model has the direction.
        split_sentences: translate sentence by sentence (the default).
        context: text that precedes each text, for models that read it.
        format: format of the texts: text (the default), html or xml.
        ignore_tags: names of tags whose content is not translated.
        splitting_tags, non_splitting_tags: names of tags that end a sentence, or do not.
        placeholders: kinds of placeholders that translations must have; `all`: every kind.
        preserve_formatting: letter case, final punctuation, emoji and no-break spaces follow the text.
        terms: entries whose terms have given translations.
        glossary: ids of stored glossaries.
        memory: names of stored memories.
    """

    source_language: str
    target_language: str
    options: SearchFields
    model: str
    allow_pivot: bool
    split_sentences: bool
    context: str
    format: str
    ignore_tags: Sequence[str]
    splitting_tags: Sequence[str]
    non_splitting_tags: Sequence[str]
    placeholders: Sequence[str]
    preserve_formatting: bool
    terms: Sequence[Entry]
    glossary: Sequence[str]
    memory: Sequence[str]


class SearchOptions(TypedDict, total=False):
    """The search options as keyword arguments; `dragoman.serve.search.option_table` describes and limits them."""

    temperature: float
    beam_size: int
    patience: float
    hypotheses: int
    length_penalty: float
    coverage_penalty: float
    top_k: int
    top_p: float
    seed: int | None
    max_target_tokens: int | None
    min_target_tokens: int
    max_target_ratio: float | None
    min_target_ratio: float
    repetition_penalty: float
    no_repeat_ngram_tokens: int
    suppressed_tokens: Sequence[str]
    suppress_unknown: bool
    token_scores: bool
    alignments: AlignmentUnit | None
    shortlist: bool | None


class TranslateOptions(RequestFields, SearchOptions, total=False):
    """The keyword arguments of a translation.

    Keys:
        target_prefix: start of each translation, one per text; absent: none.
        timeout_seconds: limit of the call, or of each text of an iterable from when it is read; absent: none.
    """

    target_prefix: Sequence[str]
    timeout_seconds: float | None


class EngineSettings(TypedDict, total=False):
    """The settings of a translator; `dragoman.serve.settings.ModelSettings` describes them and their defaults."""

    device: Literal["auto", "cpu", "cuda"]
    mode: Literal["throughput", "latency"]
    engines: int
    threads_per_engine: int
    slots: int
    alignments: bool | None
    result_cache_bytes: int


def read_options(options: TranslateOptions) -> TranslateRequest:
    """Returns a request without texts; raises InvalidArgumentError naming the first invalid option."""
    given = dict[str, Any](options)
    given.pop("timeout_seconds", None)
    fields = {name: given.pop(name) for name in (*RequestFields.__annotations__, "target_prefix") if name in given}
    base: SearchFields = fields.pop("options", DEFAULT_SEARCH)
    with typed_errors():
        # The other arguments are search options, or unknown.
        search = SearchFields.parse({**base.model_dump(exclude_unset=True), **given}) if given else base
    return TranslateRequest(**fields, options=search, fairness_key=FairnessKey())
