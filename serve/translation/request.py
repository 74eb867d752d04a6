"""What a client asks for: plain, frozen values, valid from here on.

`RequestLimits` is the one place where a request is validated, given fields that were read by
`serve.translation.fields`. Both interfaces call it, and nothing behind it checks again but what is known only when
texts are tokens. This module knows neither protocol.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from serve.bundle.manifest import BundleDirection
from serve.errors import InvalidRequestError
from serve.translation.flow import Flow
from serve.translation.search_fields import SearchFields
from serve.translation.search_limits import SearchLimits, SearchPlan


@dataclass(frozen=True, slots=True)
class TextRequest:
    """What is asked of one text.

    Attributes:
        text: what to translate.
        target_prefix: what its translation starts with, most often nothing; if it is to be scored, all of it.
        text_field, prefix_field: what the client calls them.
    """

    text: str
    target_prefix: str
    text_field: str
    prefix_field: str


@dataclass(frozen=True, slots=True)
class TranslationRequest:
    """A valid request.

    Attributes:
        texts: what is asked of each text; at least one.
        source_prefix: tokens before the source of each text, which tell the model what to translate into.
        plan: how translations are searched for.
        deadline_seconds: when nobody waits any more, on the clock of `time.monotonic`.
        source_language: ISO 639-1 code of the texts' language.
        split_sentences: whether a text may be several sentences; if not, it is taken for one.
        priority: what waits with a lower one starts later.
        flow: the stream that it is part of; None: it stands alone.
    """

    texts: tuple[TextRequest, ...]
    source_prefix: tuple[int, ...]
    plan: SearchPlan
    deadline_seconds: float
    source_language: str = ""
    split_sentences: bool = False
    priority: int = 0
    flow: Flow | None = None

    @property
    def rows(self) -> int:
        """How many rows all of its texts take."""
        return len(self.texts) * self.plan.options.rows


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What the served model and the operator allow.

    Attributes:
        directions: what the model translates; at least one.
        max_texts: texts in one request.
        max_text_characters: length of one text, in Unicode code points.
        max_rows: slots of all engines and places in the queue together.
        search: what search allows.
    """

    directions: tuple[BundleDirection, ...]
    max_texts: int
    max_text_characters: int
    max_rows: int
    search: SearchLimits

    def admit(
        self,
        *,
        texts: Sequence[str],
        source_language: str,
        target_language: str,
        options: SearchFields,
        target_prefix: Sequence[str],
        deadline_seconds: float,
        split_sentences: bool,
        priority: int = 0,
        flow: Flow | None = None,
    ) -> TranslationRequest:
        """Returns the request for translations if every field is valid.

        An empty language is the model's if it has one direction only; if it has several, the source language may be
        empty where one direction alone has the target language.

        Raises:
            InvalidRequestError: naming the first field that is not.
        """
        self._check_count("text", len(texts))
        if len(target_prefix) not in (0, len(texts)):
            problem = f"{len(target_prefix)} prefixes, expected none or one for each of {len(texts)} texts"
            raise InvalidRequestError("target_prefix", problem)
        requests = tuple(
            TextRequest(text, prefix, f"text[{index}]", f"target_prefix[{index}]")
            for index, (text, prefix) in enumerate(zip(texts, target_prefix or [""] * len(texts), strict=True))
        )
        self._check_texts(requests)
        direction = choose_direction(self.directions, source_language, target_language)
        plan = self.search.plan(options)
        self.check_rows(f"{len(texts)} texts", len(texts), plan)
        return TranslationRequest(
            requests, direction.source_prefix, plan, deadline_seconds, direction.source, split_sentences, priority, flow
        )

    def check_rows(self, what: str, count: int, plan: SearchPlan) -> None:
        """Checks that so many texts or sentences can ever run and wait together.

        Raises:
            InvalidRequestError: if they cannot.
        """
        rows = plan.options.rows
        if rows * count > self.max_rows:
            problem = f"{what} of {rows} hypotheses each, expected at most {self.max_rows} hypotheses in all"
            raise InvalidRequestError("text", problem)

    def admit_pairs(
        self,
        *,
        pairs: Sequence[tuple[str, str]],
        source_language: str,
        target_language: str,
        deadline_seconds: float,
    ) -> TranslationRequest:
        """Returns the request for the scores of pairs of text and translation if every field is valid.

        Raises:
            InvalidRequestError: naming the first field that is not.
        """
        self._check_count("pairs", len(pairs))
        requests = tuple(
            TextRequest(text, translation, f"pairs[{index}].text", f"pairs[{index}].translation")
            for index, (text, translation) in enumerate(pairs)
        )
        self._check_texts(requests)
        direction = choose_direction(self.directions, source_language, target_language)
        return TranslationRequest(
            requests, direction.source_prefix, self.search.scoring_plan(), deadline_seconds, direction.source
        )

    def _check_count(self, field: str, count: int) -> None:
        if not 1 <= count <= self.max_texts:
            raise InvalidRequestError(field, f"{count} {field.removesuffix('s')}s, expected 1 to {self.max_texts}")

    def _check_texts(self, requests: Sequence[TextRequest]) -> None:
        for request in requests:
            self._check_text(request.text_field, request.text)
            if not request.text.strip():
                raise InvalidRequestError(request.text_field, "blank, expected a sentence")
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


def choose_direction(directions: Sequence[BundleDirection], source: str, target: str) -> BundleDirection:
    """Returns the direction from `source` into `target`, either of which may be empty where it is clear.

    Args:
        directions: what there is to choose from; at least one, all different.
        source: language of the texts, as the client wrote it.
        target: language of the translations.

    Raises:
        InvalidRequestError: if there is no such direction, or there are several.
    """
    into = [direction for direction in directions if target in ("", direction.target)]
    if not into or (not target and len(directions) > 1):
        raise _wrong_language("target", target, directions)
    matching = [direction for direction in into if source in ("", direction.source)]
    if len(matching) != 1:
        raise _wrong_language("source", source, into)
    return matching[0]


def _wrong_language(side: str, language: str, directions: Sequence[BundleDirection]) -> InvalidRequestError:
    expected = ", ".join(map(str, directions))
    return InvalidRequestError(f"{side}_language", f"{language[:20]!r}, expected the {side} of one of {expected}")
