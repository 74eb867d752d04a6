"""Requests: of clients, and of the served model.

Interfaces fill a `TranslateRequest` or `ScoreRequest` with fields validated by `dragoman.serve.translation.fields`.
`RequestLimits` checks what depends on the model and returns a `ModelRequest`. Later code checks only limits in tokens
(`SearchPlan.options_for`). All values are frozen and independent of the protocol.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.protect.placeholders.patterns import Finder
from dragoman.serve.protect.placeholders.render import Rendering
from dragoman.serve.protect.terms.entry import Entry
from dragoman.serve.protect.terms.sentence_terms import SentenceTerms, TextTerms
from dragoman.serve.scheduler.sequence import FairnessKey
from dragoman.serve.translation.blank import is_blank
from dragoman.serve.translation.fields import DEFAULT_SEARCH, SearchFields, shown
from dragoman.serve.translation.markup import PLAIN, TAG_FIELDS, Reading, SentenceMarkup, read_markup, read_placeholders
from dragoman.serve.translation.search_plan import ALIGNED, SearchLimits, SearchPlan, invalid_option

# The source language of a request whose texts each have their own, to be detected.
AUTO = "auto"


class TranslateRequest(NamedTuple):
    """A request for translations. Fields are named as in gRPC and REST.

    Attributes:
        source_language: ISO 639-1 code, or `AUTO`; empty: the only source of the target, else `AUTO`.
        target_language: ISO 639-1 code; may be empty where unambiguous.
        model: name of the model; empty: the first one with the direction.
        allow_pivot: translate through a third language if no model has the direction.
        target_prefix: forced start of each translation; empty: none.
        split_sentences: translate sentence by sentence; otherwise each text, or block of markup, is one sentence.
        format: of the texts: text, html or xml.
        ignore_tags, splitting_tags, non_splitting_tags: see `MarkupOptions`.
        placeholders: kinds of placeholders that translations must have.
        preserve_formatting: whether letter case, final punctuation, emoji and no-break spaces follow the text.
        terms: entries that apply to the texts.
        glossary: ids of stored glossaries that apply, after `terms` and in their order.
        source_detected: whether the server found source_language; glossaries without it are then left out.
        deadline_seconds: on the clock of `time.monotonic`; None: the server's default timeout.
        priority: a higher one starts earlier.
        fairness_key: stream of the request, which then waits for room instead of being refused; None: no stream.
    """

    text: Sequence[str] = ()
    source_language: str = ""
    target_language: str = ""
    model: str = ""
    allow_pivot: bool = False
    options: SearchFields = DEFAULT_SEARCH
    target_prefix: Sequence[str] = ()
    split_sentences: bool = True
    format: str = PLAIN
    ignore_tags: Sequence[str] = ()
    splitting_tags: Sequence[str] = ()
    non_splitting_tags: Sequence[str] = ()
    placeholders: Sequence[str] = ()
    preserve_formatting: bool = False
    terms: Sequence[Entry] = ()
    glossary: Sequence[str] = ()
    source_detected: bool = False
    deadline_seconds: float | None = None
    priority: int = 0
    fairness_key: FairnessKey | None = None


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


class TextRequest(NamedTuple):
    """One text of a request.

    Attributes:
        target_prefix: forced start of the translation; for scoring, the whole translation.
        text_field, prefix_field: the client's names of both.
        markup: of a sentence in a text with markup; None: plain text.
        glossary: the terms of its text; None: none.
        terms: of the sentence; None: none.
    """

    text: str
    target_prefix: str
    text_field: str
    prefix_field: str
    markup: SentenceMarkup | None = None
    glossary: TextTerms | None = None
    terms: SentenceTerms | None = None

    @property
    def attended(self) -> bool:
        """Whether its tags, placeholders or terms need the attention of its translation."""
        return self.terms is not None or (self.markup is not None and self.markup.has_tags)

    def with_terms(self) -> "TextRequest":
        """Returns the sentence with the terms that it has."""
        if self.glossary is None:
            return self
        marked = None if self.markup is None else self.markup.sentence
        return self._replace(terms=self.glossary.of_sentence(self.text, marked))


class ModelRequest(NamedTuple):
    """A valid request to one model.

    Attributes:
        texts: at least one.
        direction: with the tokens before every source.
        deadline_seconds: on the clock of `time.monotonic`.
        reading: of markup, placeholders and formatting; None: plain text.
        split_sentences, priority, fairness_key: as of a `TranslateRequest`.
    """

    texts: tuple[TextRequest, ...]
    direction: BundleDirection
    plan: SearchPlan
    deadline_seconds: float
    reading: Reading | None = None
    split_sentences: bool = False
    priority: int = 0
    fairness_key: FairnessKey | None = None

    @property
    def has_terms(self) -> bool:
        """Whether terms apply."""
        return bool(self.texts) and self.texts[0].glossary is not None  # they apply to all texts or to none

    @property
    def protects(self) -> bool:
        """Whether a translation must have some parts of its text, so that it may be decoded again."""
        return self.has_terms or (self.reading is not None and bool(self.reading.placeholders))

    @property
    def rows(self) -> int:
        """Rows of all texts."""
        return len(self.texts) * self.plan.options.rows

    def check_rows(self, what: str, max_rows: int) -> None:
        """Checks that all texts can run and wait together.

        Args:
            what: names the texts in the message, such as "3 sentences".
            max_rows: rows that can run and wait together.

        Raises:
            InvalidRequestError: if there are more rows.
        """
        if self.rows > max_rows:
            rows = self.plan.options.rows
            problem = f"{what} of {rows} hypotheses each, expected at most {max_rows} hypotheses in total"
            raise InvalidRequestError("text", problem)


def _is_plain(request: TranslateRequest) -> bool:
    """Returns whether a request asks for nothing but words, as most do."""
    return request.format == PLAIN and not (
        request.placeholders
        or request.preserve_formatting
        or request.ignore_tags
        or request.splitting_tags
        or request.non_splitting_tags
    )


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """The limits of the served model and the operator.

    Attributes:
        max_texts: texts per request.
        max_text_characters: Unicode code points per text.
        max_rows: rows that can run and wait together.
    """

    max_texts: int
    max_text_characters: int
    max_rows: int
    search: SearchLimits

    def prepare(
        self,
        request: TranslateRequest,
        direction: BundleDirection,
        deadline_seconds: float,
        glossary: Sequence[TextTerms] = (),
    ) -> ModelRequest:
        """Returns the request to the model.

        Args:
            direction: one of the model's.
            deadline_seconds: on the clock of `time.monotonic`.
            glossary: the terms of each text; empty: none.

        Raises:
            InvalidRequestError: naming the first invalid field.
        """
        text_requests = self.read_texts(request)
        if glossary:
            self._check_terms(request)
            pairs = zip(text_requests, glossary, strict=True)
            text_requests = tuple(text._replace(glossary=terms) for text, terms in pairs)
        prepared = ModelRequest(
            text_requests,
            direction,
            self.search.plan(request.options),
            deadline_seconds,
            self._reading(request),
            request.split_sentences,
            request.priority,
            request.fairness_key,
        )
        prepared.check_rows(f"{len(text_requests)} texts", self.max_rows)
        return prepared

    def read_texts(self, request: TranslateRequest) -> tuple[TextRequest, ...]:
        """Returns the texts with their prefixes; raises InvalidRequestError naming the first invalid one."""
        texts, prefixes = request.text, request.target_prefix
        self._check_count("text", len(texts))
        if len(prefixes) not in (0, len(texts)):
            problem = f"{len(prefixes)} prefixes, expected none or one for each of {len(texts)} texts"
            raise InvalidRequestError("target_prefix", problem)
        text_requests = tuple(
            TextRequest(text, prefix, f"text[{index}]", f"target_prefix[{index}]")
            for index, (text, prefix) in enumerate(zip(texts, prefixes or [""] * len(texts), strict=True))
        )
        self._check_texts(text_requests)
        return text_requests

    def check_detected(self, texts: Sequence[str]) -> None:
        """Checks texts whose language is to be detected; they may be blank.

        Raises:
            InvalidRequestError: naming the first invalid one.
        """
        self._check_count("text", len(texts))
        for index, text in enumerate(texts):
            self._check_text(f"text[{index}]", text)

    def prepare_scores(
        self, request: ScoreRequest, direction: BundleDirection, deadline_seconds: float
    ) -> ModelRequest:
        """Returns the request to the model; arguments as those of `prepare`.

        Raises:
            InvalidRequestError: naming the first invalid field.
        """
        self._check_count("pairs", len(request.pairs))
        texts = tuple(
            TextRequest(text, translation, f"pairs[{index}].text", f"pairs[{index}].translation")
            for index, (text, translation) in enumerate(request.pairs)
        )
        self._check_texts(texts)
        return ModelRequest(texts, direction, self.search.scoring_plan(), deadline_seconds)

    def _check_terms(self, request: TranslateRequest) -> None:
        field = "terms" if request.terms else "glossary"
        if not self.search.aligned:
            raise InvalidRequestError(field, ALIGNED.format("expected none"))
        if any(request.target_prefix):
            raise InvalidRequestError("target_prefix", f"expected none with {field}")

    def _reading(self, request: TranslateRequest) -> Reading | None:
        if _is_plain(request):
            return None
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

    def _check_count(self, field: str, count: int) -> None:
        if not 1 <= count <= self.max_texts:
            raise InvalidRequestError(field, f"{count} {field.removesuffix('s')}s, expected 1 to {self.max_texts}")

    def _check_texts(self, requests: Sequence[TextRequest]) -> None:
        for request in requests:
            self._check_text(request.text_field, request.text)
            if is_blank(request.text):
                raise InvalidRequestError(request.text_field, "blank, expected a sentence")
            if request.target_prefix:
                self._check_text(request.prefix_field, request.target_prefix)

    def _check_text(self, field: str, text: str) -> None:
        if len(text) > self.max_text_characters:
            problem = f"{len(text)} characters, expected at most {self.max_text_characters}"
            raise InvalidRequestError(field, problem)
        if "\0" in text:
            raise InvalidRequestError(field, f"U+0000 at character {text.index(chr(0))}, expected text without it")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            surrogate = f"U+{ord(text[error.start]):04X}"
            problem = f"lone surrogate {surrogate} at character {error.start}, expected valid Unicode"
            raise InvalidRequestError(field, problem) from error
