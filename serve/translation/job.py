"""A job: what one model does with a request.

A job has texts and their sentences. Each stage of `dragoman.serve.translation.translator` fills in a part of both.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, NamedTuple

from dragoman.serve.bundle.manifest import BundleDirection
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.memory.entry import Suggestion
from dragoman.serve.protect.placeholders.check import Repair
from dragoman.serve.protect.terms.sentence_terms import SentenceTerms, TextTerms
from dragoman.serve.scheduler.request_scheduler import Reservation
from dragoman.serve.scheduler.sequence import DecodingSequence, FairnessKey
from dragoman.serve.search.options import SearchOptions
from dragoman.serve.translation.fields import DEFAULT_SEARCH, SearchFields
from dragoman.serve.translation.large_work import SMALL_TEXT_BYTES, work_bytes
from dragoman.serve.translation.markup import FEW_TAGGED_SENTENCES, SMALL_MARKUP_BYTES, Reading, SentenceMarkup
from dragoman.serve.translation.response import Pivot, TranslationResponse
from dragoman.serve.translation.shared_texts import SharedTexts

if TYPE_CHECKING:
    from dragoman.serve.memory.store import Recall  # SQLAlchemy is slow


# The numbers of texts that come from a memory.
Known = frozenset[int]


class SegmentedText(NamedTuple):
    """A text in sentences.

    Attributes:
        sentences: with a letter, without surrounding white space.
        gaps: text without letters before each sentence and after the last one; `len(sentences) + 1` strings.
        cut_sentences: number of sentences that were cut because they were too long.
        markup: of each sentence; empty for plain text.
        recalled: number of the sentences that a memory has translated, which are in the gaps; 1 for the whole text.
        suggestions: entries of memories that are similar to the text.
    """

    sentences: tuple[str, ...]
    gaps: tuple[str, ...]
    cut_sentences: int = 0
    markup: tuple[SentenceMarkup, ...] = ()
    recalled: int = 0
    suggestions: tuple[Suggestion, ...] = ()

    @property
    def plain(self) -> bool:
        """Whether the text is a single sentence without surrounding white space and without markup."""
        return self.gaps == ("", "") and not self.markup

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Start and end of each sentence in the text, if it has no markup."""
        edges = list(accumulate(map(len, chain.from_iterable(zip(self.gaps, self.sentences, strict=False)))))
        return list(zip(edges[::2], edges[1::2], strict=True))

    def join(self, translations: Sequence[str]) -> str:
        """Joins one translation per sentence with the white space of the text."""
        translated = chain.from_iterable(zip(self.gaps, translations, strict=False))
        return "".join((*translated, self.gaps[-1]))


@dataclass(slots=True, eq=False)
class Sentence(DecodingSequence):
    """A sentence of a job, which is a sequence; the stages fill it in.

    With alignments also if only its tags, placeholders or terms need them. Its hypotheses are empty until it is found
    in the result cache or decoded.

    Attributes:
        number: index of its text.
        target_prefix: forced start of its translation; for scoring, the whole translation.
        separators: number of those before its own tokens; 0: it has no context.
        markup: of a text with markup; None: plain text.
        terms: None: it has none.
        cached: whether the result cache had the hypotheses; None: no cache.
        repairs: of the best hypothesis, by decoding again.
        decoded: terms that the best hypothesis has by decoding again, by their index.
    """

    text: str = ""
    number: int = 0
    target_prefix: str = ""
    separators: int = 0
    markup: SentenceMarkup | None = None
    terms: SentenceTerms | None = None
    cached: bool | None = None
    repairs: tuple[Repair, ...] = ()
    decoded: frozenset[int] = frozenset()

    @property
    def attended(self) -> bool:
        """Whether its tags, placeholders or terms need the attention of its translation."""
        return self.terms is not None or (self.markup is not None and self.markup.has_tags)

    @property
    def required_texts(self) -> Iterator[str]:
        """The kept texts of its markup, such as placeholders, and the forms of its terms."""
        if self.markup is not None:
            yield from self.markup.sentence.kept_texts
        if self.terms is not None:
            yield from self.terms.forms


def characters_of(sentence: Sentence) -> int:
    """Returns the characters of a sentence that are tokenized."""
    return len(sentence.text) + len(sentence.target_prefix)


@dataclass(slots=True, kw_only=True)
class Job:
    """A valid request to one model.

    Attributes:
        texts: at least one.
        target_prefixes: of each text; for scoring, the translations; empty: none.
        direction: with the tokens before every source.
        options: common to all texts; lengths relative to the source and the prefix are not set yet.
        fields: the options as the client sets them.
        deadline_seconds: on the clock of `time.monotonic`.
        reading: of markup, placeholders and formatting; None: plain text.
        glossary: the terms of each text; empty: none.
        recall: finds sentences in memories, or the texts that come from one and stay as they are; None: none do.
        context, split_sentences, priority, fairness_key, shared: as of a `TranslateRequest`.
        scored: whether texts and prefixes are the pairs of a `ScoreRequest`.
        shares: how many of the texts each request has that shares the job; empty: the job is of one request.
        before: response and pivot of the hop before; None: a direct translation.
        reservation: rows of the job, once they are reserved.
        cuts: each text in sentences, once they are split.
        sentences: of all texts, in their order.
        searched: the sentences that the result cache does not have.
        started_seconds, tokenized_seconds: start and end of tokenization, on the clock of `time.monotonic`.
        work_bytes: as of `dragoman.serve.translation.large_work`, for texts and prefixes.
        small: whether each stage takes less than about a millisecond, unless it adds more than words.
    """

    texts: Sequence[str]
    target_prefixes: Sequence[str] = ()
    direction: BundleDirection
    options: SearchOptions
    fields: SearchFields = DEFAULT_SEARCH
    deadline_seconds: float
    reading: Reading | None = None
    glossary: Sequence[TextTerms] = ()
    recall: "Recall | Known | None" = None
    context: str = ""
    split_sentences: bool = False
    priority: int = 0
    fairness_key: FairnessKey | None = None
    shared: SharedTexts | None = None
    scored: bool = False
    shares: Sequence[int] = ()
    before: tuple[TranslationResponse, Pivot] | None = None
    reservation: Reservation | None = None
    cuts: Sequence[SegmentedText] = ()
    sentences: list[Sentence] = field(default_factory=list)
    searched: Sequence[Sentence] = ()
    started_seconds: float = 0.0
    tokenized_seconds: float = 0.0
    work_bytes: int = field(init=False)
    small: bool = field(init=False)

    def __post_init__(self) -> None:
        self.work_bytes = work_bytes((*self.texts, *self.target_prefixes, self.context))
        self.small = self.work_bytes <= SMALL_TEXT_BYTES

    @property
    def targets(self) -> int:
        """Number of the targets of the client; the texts count for each."""
        return 1 if self.shared is None else len(self.shared.targets)

    @property
    def protects(self) -> bool:
        """Whether a translation must have some parts of its text, so that it may be decoded again."""
        return bool(self.glossary) or (self.reading is not None and bool(self.reading.placeholders))

    @property
    def plain(self) -> bool:
        """Whether each text is a plain sentence, whose translation is that of the text."""
        return all(cut.plain for cut in self.cuts)

    @property
    def simple(self) -> bool:
        """Whether texts and options determine the translations, which have no values per token or alternative."""
        fields = self.fields
        per_token = fields.token_scores or fields.alignments is not None
        words_only = self.reading is None and not self.glossary and self.recall is None
        return words_only and not (per_token or self.context) and self.options.hypotheses == 1

    @property
    def rows(self) -> int:
        """Rows of all sentences; of all texts before they are split."""
        return len(self.sentences or self.texts) * self.options.rows

    @property
    def slow_to_render(self) -> bool:
        """Whether rendering takes long, because many sentences may have terms or placeholders."""
        return self.protects and sum([len(sentence.text) for sentence in self.sentences]) > SMALL_MARKUP_BYTES

    @property
    def slow_to_join(self) -> bool:
        """Whether joining takes long, because many sentences need more than escapes, or long ones."""
        marked = [sentence.markup for sentence in self.sentences if sentence.markup is not None]
        sizes = [len(markup.sentence.source) for markup in marked if not markup.grows]
        return len(sizes) > FEW_TAGGED_SENTENCES or sum(sizes) > SMALL_MARKUP_BYTES

    def text_field(self, number: int) -> str:
        """Returns the client's name of a text."""
        return f"pairs[{number}].text" if self.scored else f"text[{number}]"

    def prefix_field(self, number: int) -> str:
        """Returns the client's name of a prefix."""
        return f"pairs[{number}].translation" if self.scored else f"target_prefix[{number}]"

    def options_for(self, sentence: Sentence, prefix_ids: tuple[int, ...] = ()) -> SearchOptions:
        """Returns the options of a tokenized sentence, whose translation starts with `prefix_ids`.

        The client's limits do not count the first tokens of the direction.

        Raises InvalidRequestError if the prefix exceeds the longest translation.
        """
        options, start = self.options, self.direction.start
        if prefix_ids or start or self.fields.max_target_ratio is not None or self.fields.min_target_ratio:
            shortest, longest = self._lengths(len(sentence.source_ids))
            # A forced end token takes one more position after the prefix.
            if len(prefix_ids) > (room := longest - options.forced_end):
                problem = f"{len(prefix_ids)} tokens, expected at most {room}"
                raise InvalidRequestError(self.prefix_field(sentence.number), problem)
            options = options._replace(
                max_target_tokens=longest + len(start),
                min_target_tokens=shortest + len(start) if shortest else 0,
                target_prefix=(*start, *prefix_ids),
                start_tokens=len(start),
            )
        return options._replace(alignments=True) if sentence.attended else options

    def _lengths(self, source_tokens: int) -> tuple[int, int]:
        """Returns the tokens of the shortest and of the longest translation of a source."""
        longest, fields = self.options.max_target_tokens, self.fields
        if fields.max_target_ratio is not None:
            longest = max(1, min(longest, math.floor(fields.max_target_ratio * source_tokens)))
        shortest = max(self.options.min_target_tokens, math.ceil(fields.min_target_ratio * source_tokens))
        return min(shortest, longest), longest

    def fill(self, cuts: Sequence[SegmentedText]) -> None:
        """Stores each text in sentences."""
        self.cuts = cuts
        self.sentences = [
            Sentence(text=text, number=number, target_prefix=prefix, markup=markup)
            for number, (cut, prefix) in enumerate(zip(cuts, self.target_prefixes or repeat(""), strict=False))
            for text, markup in zip(cut.sentences, cut.markup or repeat(None), strict=False)
        ]

    def add_terms(self, sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        """Gives sentences of the job their terms, and returns them."""
        for sentence in sentences if self.glossary else ():
            marked = None if sentence.markup is None else sentence.markup.sentence
            sentence.terms = self.glossary[sentence.number].of_sentence(sentence.text, marked)
        return sentences
