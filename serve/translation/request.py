"""What a client asks for: plain, frozen values, valid from here on.

`RequestLimits` is the one place where a request is validated, given fields that were read by
`serve.translation.fields`. Both interfaces call it, and nothing behind it checks again but what is known only when
texts are tokens. This module knows neither protocol.

Requests that come one after the other from the same client, and share what one client may have.

Made by whoever reads a stream of requests; `serve.translation.submission` lets them in, and fair queuing takes a flow
for one request (`serve.scheduler.queue`).

What a client asks for before anybody looked whether it can be had: the fields of a request, of whatever protocol.

Both interfaces and `dragoman translate` fill these records; `serve.registry.dispatcher` turns them into valid requests.

The tokens of translations as clients write them: pieces to ids, and ids to pieces.

Built once for each served model by `serve.registry.pipeline`. Knows neither text nor search.

What the served model and its slots allow a search: valid fields to a plan, and a plan to the options of one text.

`SearchLimits.plan` checks what `serve.translation.fields` cannot know, once for each request;
`SearchPlan.options_for` what is known only when a text is tokens. Nothing behind them checks again. Knows no protocol;
called by `serve.translation.request` and `serve.translation.translator`.
"""

import math
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from serve.bundle.manifest import BundleDirection
from serve.errors import InvalidRequestError
from serve.search.options import MAX_SUPPRESSED_IDS, SearchOptions
from serve.translation.fields import OPTIONS, SearchFields, shown


class FairnessKey:
    """A stream of requests; its identity is what counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDirection:
    """Who is to translate from what into what.

    Attributes:
        model: name of the model; empty: the first that has the direction.
        source_language, target_language: ISO 639-1 codes; either may be empty where it is clear.
        allow_pivot: whether to go by way of a third language where there is no direction.
    """

    model: str = ""
    source_language: str = ""
    target_language: str = ""
    allow_pivot: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTranslation:
    """A request for translations.

    Attributes:
        texts: what to translate.
        direction: from what into what.
        options: how translations are searched for.
        target_prefix: what each translation starts with.
        split_sentences: whether a text is translated sentence by sentence; if not, it is taken for one.
        deadline_seconds: when the client stops waiting, on the clock of `time.monotonic`; None: it did not say.
        priority: what waits with a lower one starts later.
        fairness_key: the stream that it is part of, and then it waits where it would be refused for want of room;
        None: it
            stands alone.
    """

    texts: Sequence[str]
    direction: AskedDirection = field(default=AskedDirection())
    options: SearchFields = field(default=SearchFields())
    target_prefix: Sequence[str] = ()
    split_sentences: bool = True
    deadline_seconds: float | None = None
    priority: int = 0
    fairness_key: FairnessKey | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedScore:
    """A request for scores.

    Attributes:
        pairs: texts and their translations.
        direction: from what into what; there is no pivot.
        deadline_seconds: as of a request for translations.
    """

    pairs: Sequence[tuple[str, str]]
    direction: AskedDirection = field(default=AskedDirection())
    deadline_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class TargetVocabulary:
    """The pieces of the target side.

    Attributes:
        pieces: how tokens are written, in the order of their ids.
        ids: the token of each piece.
        unk_id: stands for pieces that the vocabulary lacks.
        eos_id: ends a translation.
    """

    pieces: Sequence[str]
    ids: Mapping[str, int]
    unk_id: int
    eos_id: int

    @classmethod
    def of(cls, pieces: Sequence[str], *, unk_id: int, eos_id: int) -> Self:
        """Returns the vocabulary of pieces that differ."""
        return cls(pieces, {piece: token_id for token_id, piece in enumerate(pieces)}, unk_id, eos_id)


# Short enough to be copied, and exact in every language's numbers.
SEED_BITS = 32


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """How each text of a request is searched for, before its tokens are known.

    Attributes:
        options: of every text, but for the lengths that follow from its own, and its prefix.
        max_target_ratio: the longest translation, times the tokens of the source; None: no such limit.
        min_target_ratio: the shortest one.
        token_scores: whether the client wants the score of every token.
        repeatable: whether the same text gets the same answer again; False if the server chose the seed.
    """

    options: SearchOptions
    max_target_ratio: float | None = None
    min_target_ratio: float = 0.0
    token_scores: bool = False
    repeatable: bool = True

    def options_for(self, source_tokens: int, target_prefix: tuple[int, ...], field: str) -> SearchOptions:
        """Returns the options of one text.

        Args:
            source_tokens: of the text, with what surrounds it.
            target_prefix: tokens that the translation must start with.
            field: what the client calls the prefix.

        Raises:
            InvalidRequestError: if the prefix is longer than the translation may be.
        """
        options, longest = self.options, self.options.max_target_tokens
        if self.max_target_ratio is not None:
            longest = max(1, min(longest, math.floor(self.max_target_ratio * source_tokens)))
        shortest = max(options.min_target_tokens, math.ceil(self.min_target_ratio * source_tokens))
        # The end token that is forced behind a prefix needs a place of its own.
        room = longest - options.forced_end
        if len(target_prefix) > room:
            raise InvalidRequestError(field, f"{len(target_prefix)} tokens, expected at most {room}")
        shortest = min(shortest, longest)
        if not target_prefix and (longest, shortest) == (options.max_target_tokens, options.min_target_tokens):
            return options
        return replace(
            options,
            max_target_tokens=longest,
            min_target_tokens=shortest,
            target_prefix=target_prefix,
        )


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """What is the same for every request.

    Attributes:
        max_target_tokens: length of one translation, without the end token.
        max_rows: slots of one engine: a text must fit into one.
        aligned: whether the model tells where it looks.
        vocabulary: of translations.
    """

    max_target_tokens: int
    max_rows: int
    aligned: bool
    vocabulary: TargetVocabulary

    def plan(self, fields: SearchFields) -> SearchPlan:
        """Returns how the texts of a request are searched for.

        Sampling without a seed gets a random one.

        Raises:
            InvalidRequestError: naming the first field that the model or its slots cannot serve.
        """
        longest = self.max_target_tokens if fields.max_target_tokens is None else fields.max_target_tokens
        if longest > self.max_target_tokens:
            raise _refused("max_target_tokens", longest, f"1 to {self.max_target_tokens}: the model's limit")
        if fields.min_target_tokens > longest:
            raise _refused("min_target_tokens", fields.min_target_tokens, f"at most {longest}: the model's limit")
        if fields.rows > self.max_rows:
            name = "hypotheses" if fields.sampled else "beam_size"
            raise _refused(name, fields.rows, f"at most {self.max_rows}: a text must fit into the slots of one engine")
        self._check_attention(fields)
        repeatable = fields.seed is not None or not fields.sampled
        seed = fields.seed if repeatable else secrets.randbits(SEED_BITS)
        options = SearchOptions(
            max_target_tokens=longest,
            min_target_tokens=fields.min_target_tokens,
            beam_size=fields.beam_size,
            patience=fields.patience,
            hypotheses=fields.hypotheses,
            length_penalty=fields.length_penalty,
            coverage_penalty=fields.coverage_penalty,
            temperature=fields.temperature,
            top_k=fields.top_k,
            top_p=fields.top_p,
            seed=seed or 0,
            repetition_penalty=fields.repetition_penalty,
            no_repeat_ngram_tokens=fields.no_repeat_ngram_tokens,
            suppressed_ids=self._suppressed_ids(fields),
            alignments=fields.alignments,
        )
        return SearchPlan(
            options, fields.max_target_ratio, fields.min_target_ratio, fields.token_scores, repeatable=repeatable
        )

    def scoring_plan(self) -> SearchPlan:
        """Returns how given translations are scored: nothing is searched for."""
        return SearchPlan(SearchOptions(max_target_tokens=self.max_target_tokens, forced_end=True), token_scores=True)

    def _check_attention(self, fields: SearchFields) -> None:
        expected = (
            "{}: this server runs without alignments; start it with --alignments, on a bundle that was exported with "
            "--align LAYER:HEAD"
        )
        if fields.coverage_penalty > 0 and not self.aligned:
            raise _refused("coverage_penalty", fields.coverage_penalty, expected.format(0))
        if fields.alignments and not self.aligned:
            raise _refused("alignments", fields.alignments, expected.format("false"))

    def _suppressed_ids(self, fields: SearchFields) -> tuple[int, ...]:
        ids: dict[int, None] = {}
        for index, piece in enumerate(fields.suppressed_tokens):
            token_id = self.vocabulary.ids.get(piece)
            if token_id is None:
                raise _refused(f"suppressed_tokens[{index}]", piece, "a piece of the target vocabulary")
            if token_id == self.vocabulary.eos_id:
                raise _refused(f"suppressed_tokens[{index}]", piece, "another one than the end token")
            ids[token_id] = None
        if fields.suppress_unknown:
            ids[self.vocabulary.unk_id] = None
        if len(ids) > MAX_SUPPRESSED_IDS:
            expected = f"false with {MAX_SUPPRESSED_IDS} suppressed tokens, which are as many as there may be"
            raise _refused("suppress_unknown", fields.suppress_unknown, expected)
        return tuple(ids)


def _refused(name: str, value: object, expected: str) -> InvalidRequestError:
    return InvalidRequestError(f"{OPTIONS}.{name}", f"{shown(value)}, expected {expected}")


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
        fairness_key: the stream that it is part of; None: it stands alone.
    """

    texts: tuple[TextRequest, ...]
    source_prefix: tuple[int, ...]
    plan: SearchPlan
    deadline_seconds: float
    source_language: str = ""
    split_sentences: bool = False
    priority: int = 0
    fairness_key: FairnessKey | None = None

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
        fairness_key: FairnessKey | None = None,
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
            requests,
            direction.source_prefix,
            plan,
            deadline_seconds,
            direction.source,
            split_sentences,
            priority,
            fairness_key,
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
