"""Requests of clients, and the limits by which they become jobs of a model.

Interfaces fill a `TranslateRequest` or `ScoreRequest` with fields validated by `dragoman.serve.translation.fields`.
`RequestLimits` checks what depends on the model and returns a `Job`, with the search of `SearchLimits`. Later code
checks only limits in tokens (`Job.options_for`). Requests are frozen and independent of the protocol.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.protect.placeholders.patterns import Finder
from dragoman.serve.protect.placeholders.render import Rendering
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.protect.terms.sentence_terms import TextTerms
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.search.option_table import ROWS
from dragoman.serve.search.options import MAX_SUPPRESSED_IDS, SearchOptions
from dragoman.serve.translation.fields import DEFAULT_SEARCH, OPTIONS, SearchFields, find_visible, shown
from dragoman.serve.translation.job import Job, Known
from dragoman.serve.translation.markup import PLAIN, TAG_FIELDS, Reading, read_markup, read_placeholders
from dragoman.serve.translation.segments import TargetVocabulary
from dragoman.serve.translation.shared_texts import SharedTexts

if TYPE_CHECKING:
    from dragoman.serve.memory.store import Recall  # SQLAlchemy is slow

# The source language of a request whose texts each have their own, to be detected.
AUTO = "auto"
# What a server without alignments expects.
ALIGNED = "{}: serve a bundle of `dragoman export --align LAYER:HEAD`, without --no-alignments"
# Options that the search takes as clients set them.
_UNCHANGED = tuple(ROWS.keys() & set(SearchOptions._fields) - {"max_target_tokens", "seed", "alignments", "shortlist"})
# Short enough to copy by hand, and exact as a double.
SEED_BITS = 32
_SCORING = SearchFields(token_scores=True)


class TranslateRequest(NamedTuple):
    """A request for translations. Fields are named as in gRPC and REST.

    Attributes:
        source_language: ISO 639-1 code, or `AUTO`; empty: the only source of the target, else `AUTO`.
        target_language: ISO 639-1 code; may be empty where unambiguous.
        target_languages: several targets in place of `target_language`; empty: there is one.
        model: name of the model; empty: the first one with the direction.
        allow_pivot: translate through a third language if no model has the direction.
        target_prefix: forced start of each translation; empty: none.
        split_sentences: translate sentence by sentence; otherwise each text, or block of markup, is one sentence.
        context: what precedes each text, for models that read it; it is not translated.
        format: of the texts: text, html or xml.
        ignore_tags, splitting_tags, non_splitting_tags: see `MarkupOptions`.
        placeholders: kinds of placeholders that translations must have.
        preserve_formatting: whether letter case, final punctuation, emoji and no-break spaces follow the text.
        terms: entries that apply to the texts.
        glossary: ids of stored glossaries that apply, after `terms` and in their order.
        memory: names of stored memories that answer equal texts, in their order; empty: that of the server, if any.
        source_detected: whether the server found source_language; glossaries without it are then left out.
        deadline_seconds: on the clock of `time.monotonic`; None: the server's default timeout.
        priority: a higher one starts earlier.
        fairness_key: stream of the request, which then waits for room instead of being refused; None: no stream.
        shared: what requests of other targets have too; None: the client has one target.
    """

    text: Sequence[str] = ()
    source_language: str = ""
    target_language: str = ""
    target_languages: Sequence[str] = ()
    model: str = ""
    allow_pivot: bool = False
    options: SearchFields = DEFAULT_SEARCH
    target_prefix: Sequence[str] = ()
    split_sentences: bool = True
    context: str = ""
    format: str = PLAIN
    ignore_tags: Sequence[str] = ()
    splitting_tags: Sequence[str] = ()
    non_splitting_tags: Sequence[str] = ()
    placeholders: Sequence[str] = ()
    preserve_formatting: bool = False
    terms: Sequence[Entry] = ()
    glossary: Sequence[str] = ()
    memory: Sequence[str] = ()
    source_detected: bool = False
    deadline_seconds: float | None = None
    priority: int = 0
    fairness_key: FairnessKey | None = None
    shared: SharedTexts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRequest:
    """A request to score given translations. Other fields are those of a `TranslateRequest`.

    Attributes:
        pairs: each a text and its translation.
    """

    pairs: Sequence[tuple[str, str]] = ()
    source_language: str = ""
    target_language: str = ""
    model: str = ""
    deadline_seconds: float | None = None


def _is_plain(request: TranslateRequest) -> bool:
    """Returns whether a request asks for nothing but words, as most do."""
    return request.format == PLAIN and not (
        request.placeholders
        or request.preserve_formatting
        or request.ignore_tags
        or request.splitting_tags
        or request.non_splitting_tags
    )


@dataclass(frozen=True)
class SearchLimits:
    """The limits of the model and its slots for every search.

    Attributes:
        max_target_tokens: longest translation, the end token excluded.
        max_rows: slots of one engine; all rows of a text run in one engine.
        beam_size: of requests that choose neither a beam nor sampling; at most `max_rows`.
        aligned: the model returns attention weights.
        vocabulary: of the target side.
        shortlist: whether searches that do not choose use the model's shortlist; None: it has none.
    """

    max_target_tokens: int
    max_rows: int
    beam_size: int
    aligned: bool
    vocabulary: TargetVocabulary
    shortlist: bool | None = None

    def options(self, fields: SearchFields) -> tuple[SearchFields, SearchOptions]:
        """Returns valid fields with the defaults of the model, and their options.

        Sampling without a seed gets a random one.

        Raises:
            InvalidRequestError: naming the first field that exceeds a limit.
        """
        return self._default if fields is DEFAULT_SEARCH else self._completed(fields)

    @cached_property
    def _default(self) -> tuple[SearchFields, SearchOptions]:
        return self._completed(DEFAULT_SEARCH)

    def _completed(self, fields: SearchFields) -> tuple[SearchFields, SearchOptions]:
        if self.beam_size > 1 and not (fields.sampled or "beam_size" in fields.model_fields_set):
            fields = fields.model_copy(update={"beam_size": self.beam_size})
        return fields, self._options(fields)

    def _options(self, fields: SearchFields) -> SearchOptions:
        longest = self.max_target_tokens if fields.max_target_tokens is None else fields.max_target_tokens
        if longest > self.max_target_tokens:
            raise invalid_option("max_target_tokens", longest, f"1 to {self.max_target_tokens}: the model's limit")
        if fields.min_target_tokens > longest:
            raise invalid_option("min_target_tokens", fields.min_target_tokens, f"at most {longest}: the model's limit")
        if fields.rows > self.max_rows:
            name = "hypotheses" if fields.sampled else "beam_size"
            raise invalid_option(
                name, fields.rows, f"at most {self.max_rows}: a text must fit into the slots of one engine"
            )
        if fields.coverage_penalty > 0 and not self.aligned:
            raise invalid_option("coverage_penalty", fields.coverage_penalty, ALIGNED.format(0))
        if fields.alignments and not self.aligned:
            raise invalid_option("alignments", fields.alignments, ALIGNED.format("none"))
        if fields.shortlist and self.shortlist is None:
            raise invalid_option("shortlist", fields.shortlist, "false: the model has no shortlist")
        seed = fields.seed if fields.repeatable else secrets.randbits(SEED_BITS)
        return SearchOptions(
            **{name: getattr(fields, name) for name in _UNCHANGED},
            max_target_tokens=longest,
            seed=seed or 0,
            suppressed_ids=self._suppressed_ids(fields),
            alignments=fields.alignments is not None,
            shortlist=bool(self.shortlist if fields.shortlist is None else fields.shortlist),
        )

    def _suppressed_ids(self, fields: SearchFields) -> tuple[int, ...]:
        ids: dict[int, None] = {}
        for index, piece in enumerate(fields.suppressed_tokens):
            token_id = self.vocabulary.ids.get(piece)
            if token_id is None:
                raise invalid_option(f"suppressed_tokens[{index}]", piece, "a piece of the target vocabulary")
            if token_id == self.vocabulary.eos_id:
                raise invalid_option(f"suppressed_tokens[{index}]", piece, "any piece but the end token")
            ids[token_id] = None
        if fields.suppress_unknown:
            ids[self.vocabulary.unk_id] = None
        if len(ids) > MAX_SUPPRESSED_IDS:
            expected = f"false with {MAX_SUPPRESSED_IDS} suppressed tokens, the maximum"
            raise invalid_option("suppress_unknown", fields.suppress_unknown, expected)
        return tuple(ids)


def invalid_option(name: str, value: object, expected: str) -> InvalidRequestError:
    """Returns the error of a search option."""
    return InvalidRequestError(f"{OPTIONS}.{name}", f"{shown(value)}, expected {expected}")


@dataclass(frozen=True, slots=True)
class TextLimits:
    """The limits of the texts of a request.

    Attributes:
        max_texts: texts per request.
        max_text_characters: Unicode code points per text.
    """

    max_texts: int
    max_text_characters: int

    def check_texts(self, request: TranslateRequest) -> None:
        """Checks the texts and their prefixes; raises InvalidRequestError naming the first invalid one."""
        texts, prefixes = request.text, request.target_prefix
        self._check_count("text", len(texts), 1 if request.shared is None else len(request.shared.targets))
        if len(prefixes) not in (0, len(texts)):
            problem = f"{len(prefixes)} prefixes, expected none or one for each of {len(texts)} texts"
            raise InvalidRequestError("target_prefix", problem)
        self._check("text[{}]", texts)
        self._check("context", [request.context], blank=True)
        if prefixes:
            self._check("target_prefix[{}]", prefixes, blank=True)

    def check_detected(self, texts: Sequence[str]) -> None:
        """Checks texts whose language is to be detected; they may be blank.

        Raises:
            InvalidRequestError: naming the first invalid one.
        """
        self._check_count("text", len(texts))
        self._check("text[{}]", texts, blank=True)

    def _check_count(self, field: str, count: int, targets: int = 1) -> None:
        if not 1 <= count * targets <= self.max_texts:
            counted = f"{count} {field.removesuffix('s')}s" + (f" for each of {targets} targets" if targets > 1 else "")
            raise InvalidRequestError(field, f"{counted}, expected 1 to {self.max_texts}")

    def _check(self, field: str, texts: Sequence[str], *, blank: bool = False) -> None:
        """Checks texts, whose indices complete the name of a field; `blank`: they may be blank."""
        for number, text in enumerate(texts):
            if text.isascii() and len(text) <= self.max_text_characters and "\0" not in text and find_visible(text):
                continue  # as most texts
            if problem := self._problem(text, blank=blank):
                raise InvalidRequestError(field.format(number), problem)

    def _problem(self, text: str, *, blank: bool) -> str:
        """Returns what is invalid; empty: nothing."""
        if len(text) > self.max_text_characters:
            return f"{len(text)} characters, expected at most {self.max_text_characters}"
        if "\0" in text:
            return f"U+0000 at character {text.index(chr(0))}, expected text without it"
        try:
            text.encode()
        except UnicodeEncodeError as error:
            surrogate = f"U+{ord(text[error.start]):04X}"
            return f"lone surrogate {surrogate} at character {error.start}, expected valid Unicode"
        return "blank, expected a sentence" if not blank and find_visible(text) is None else ""


@dataclass(frozen=True, slots=True)
class RequestLimits(TextLimits):
    """The limits of the served model and the operator.

    Attributes:
        max_rows: rows that can run and wait together.
    """

    max_rows: int
    search: SearchLimits

    def prepare(
        self,
        request: TranslateRequest,
        direction: BundleDirection,
        deadline_seconds: float,
        glossary: Sequence[TextTerms] = (),
        recall: "Recall | Known | None" = None,
    ) -> Job:
        """Returns the job of the model.

        Args:
            direction: one of the model's.
            deadline_seconds: on the clock of `time.monotonic`.
            glossary: the terms of each text; empty: none.
            recall: finds sentences in memories; None: in none.

        Raises:
            InvalidRequestError: naming the first invalid field.
        """
        self.check_texts(request)
        if glossary:
            self._check_terms(request)
        fields, options = self.search.options(request.options)
        job = Job(
            texts=request.text,
            target_prefixes=request.target_prefix,
            direction=direction,
            options=options,
            fields=fields,
            deadline_seconds=deadline_seconds,
            reading=None if _is_plain(request) else self._reading(request),
            glossary=glossary,
            recall=recall,
            context=request.context,
            split_sentences=request.split_sentences,
            priority=request.priority,
            fairness_key=request.fairness_key,
            shared=request.shared,
        )
        if job.rows * job.targets > self.max_rows:
            texts = f"{len(job.texts) * job.targets} texts of {options.rows} hypotheses each"
            raise InvalidRequestError("text", f"{texts}, expected at most {self.max_rows} hypotheses in total")
        return job

    def prepare_scores(self, request: ScoreRequest, direction: BundleDirection, deadline_seconds: float) -> Job:
        """Returns the job of the model; arguments as those of `prepare`.

        Raises:
            InvalidRequestError: naming the first invalid field.
        """
        self._check_count("pairs", len(request.pairs))
        texts, translations = [text for text, _ in request.pairs], [translation for _, translation in request.pairs]
        self._check("pairs[{}].text", texts)
        self._check("pairs[{}].translation", translations, blank=True)
        return Job(
            texts=texts,
            target_prefixes=translations,
            direction=direction,
            options=SearchOptions(max_target_tokens=self.search.max_target_tokens, forced_end=True),
            fields=_SCORING,
            deadline_seconds=deadline_seconds,
            scored=True,
        )

    def _check_terms(self, request: TranslateRequest) -> None:
        field = "terms" if request.terms else "glossary"
        if not self.search.aligned:
            raise InvalidRequestError(field, ALIGNED.format("expected none"))
        if any(request.target_prefix):
            raise InvalidRequestError("target_prefix", f"expected none with {field}")

    def _reading(self, request: TranslateRequest) -> Reading | None:
        markup = read_markup(request.format, {name: getattr(request, name) for name in TAG_FIELDS})
        placeholders = read_placeholders(request.placeholders, aligned=self.search.aligned)
        given: list[tuple[str, object, str]] = []
        if markup.format != PLAIN:
            given.append(("format", request.format, PLAIN))
        if placeholders:
            given.append(("placeholders", list(request.placeholders), "none"))
        if request.preserve_formatting:
            given.append(("preserve_formatting", True, "false"))
        if not given:
            return None
        field, value, plain = given[0]
        if not self.search.aligned:
            raise InvalidRequestError(field, f"{shown(value)}, expected {ALIGNED.format(plain)}")
        what = f"with format {value}" if field == "format" else f"with {field}"
        if any(request.target_prefix):
            raise InvalidRequestError("target_prefix", f"expected none {what}")
        if request.options.alignments is not None:
            raise invalid_option("alignments", request.options.alignments, f"none {what}")
        finder = Finder(placeholders) if placeholders else None
        return Reading(markup, placeholders, Rendering(finder, request.preserve_formatting))
