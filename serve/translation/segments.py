"""How a model reads texts: their sentences, and the tokens of these.

A text is split at the ends of lines and of sentences (by `sentencex`, which has abbreviations of many languages). A
sentence that exceeds the model's limit is cut further at the least harmful place. White space and sentences without a
letter, such as `12:30`, are kept between the pieces: joined without translation, the pieces are the text, character by
character.

In a text with markup, the gaps between the sentences hold tags, and sentences are split inside of blocks.

A model that has a separator reads a sentence with the sentences before it, whose translations are left out.
"""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, pairwise
from typing import Self

from sentencex import segment

from dragoman.model.tokenizer.tokenizer import TextTokenizer
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.protect.markup.sentences import read_document
from dragoman.serve.protect.markup.tokens import MarkupError
from dragoman.serve.search.hypothesis import FinishReason, normalize
from dragoman.serve.translation.fields import BLANK_CHARACTERS, DEFAULT_SEARCH, OPTIONS, is_blank
from dragoman.serve.translation.job import Job, SegmentedText, Sentence
from dragoman.serve.translation.large_work import normalized_bytes
from dragoman.serve.translation.markup import Reading, SentenceMarkup

# Blank lines, or a line.
LINE = re.compile(rf"[{BLANK_CHARACTERS}]*[\r\n]|[^\r\n]+")
# Places to cut a sentence that is too long, best first: after a clause, after a comma, between words.
CUTS = (re.compile(r"(?<=[;:.!?\u2013\u2014)\]])\s+"), re.compile(r"(?<=,)\s+"), re.compile(r"\s+"))

# Options that would count the tokens of the context too.
_LENGTHS = ("max_target_tokens", "min_target_tokens", "max_target_ratio", "min_target_ratio", "coverage_penalty")
_COUNTING = (*_LENGTHS, "hypotheses", "repetition_penalty", "no_repeat_ngram_tokens")


@dataclass(frozen=True, slots=True)
class TargetVocabulary:
    """The pieces of the target side, by which clients name tokens.

    Attributes:
        pieces: in the order of their ids.
        ids: id of each piece.
        unk_id: id of the unknown token.
        eos_id: id of the end token.
    """

    pieces: Sequence[str]
    ids: Mapping[str, int]
    unk_id: int
    eos_id: int

    @classmethod
    def of(cls, pieces: Sequence[str], *, unk_id: int, eos_id: int) -> Self:
        """Returns the vocabulary of distinct pieces."""
        return cls(pieces, dict(zip(pieces, count())), unk_id, eos_id)


@dataclass(frozen=True, slots=True)
class TextModel:
    """The tokens of one model, and how long its sources may be.

    Attributes:
        source_suffix: token ids after every source.
        max_source_tokens: of a source with prefix and suffix.
        least_log_probability: mean per token below which a text has low confidence; None: unknown.
        context_separator: as of a `Manifest`.
    """

    tokenizer: TextTokenizer
    vocabulary: TargetVocabulary
    source_suffix: tuple[int, ...]
    max_source_tokens: int
    least_log_probability: float | None = None
    context_separator: str = ""

    def fits(self, source_prefix: tuple[int, ...], sentence: str) -> bool:
        """Returns whether the model can read a sentence after a prefix."""
        max_tokens = self.max_source_tokens - len(source_prefix) - len(self.source_suffix)
        # A token has at least one byte, except for the first of a text: most sentences need no tokenization here.
        return normalized_bytes(sentence) < max_tokens or len(self.tokenizer.encode(sentence)) <= max_tokens

    def tokenize(self, job: Job, sentences: Sequence[Sentence]) -> Sequence[Sentence]:
        """Gives sentences of a job their tokens and options, and returns them.

        Raises InvalidRequestError if a sentence is too long, or its prefix exceeds the longest translation.
        """
        prefix, suffix = job.direction.source_prefix, self.source_suffix
        texts = [sentence.text for sentence in sentences]
        encoded = job.shared.encode(self.tokenizer, texts) if job.shared else self.tokenizer.encode_all(texts)
        for sentence, ids in zip(sentences, encoded, strict=True):
            sentence.source_ids = source_ids = (*prefix, *ids, *suffix)
            if len(source_ids) > self.max_source_tokens:
                problem = f"{len(source_ids)} tokens, expected at most {self.max_source_tokens}"
                raise InvalidRequestError(job.text_field(sentence.number), problem)
            prefix_ids = tuple(self.tokenizer.encode_target(sentence.target_prefix)) if sentence.target_prefix else ()
            sentence.options = job.options_for(sentence, prefix_ids)
            if sentence.options.shortlist and (texts := list(sentence.required_texts)):
                required = {token for text in texts for token in self.tokenizer.encode_target(text)}
                sentence.options = sentence.options._replace(candidate_ids=tuple(sorted(required)))
        return sentences


class TooManySentencesError(Exception):
    """A text has more sentences than allowed."""


def split_text(text: str, language: str, fits: Callable[[str], bool], max_sentences: int) -> SegmentedText:
    """Splits a text, and stops at the first sentence beyond the limit.

    Args:
        language: ISO 639-1 code; for an unknown one, rules of a related language or of English apply.
        fits: returns whether the model can read a sentence.
        max_sentences: the limit, after cuts.

    Raises TooManySentencesError if the text has more sentences.
    """
    is_line = "\n" not in text and "\r" not in text and has_letter(text)
    line = segment(language, text) if is_line else []
    if len(line) == 1 and max_sentences and fits(bare := text.strip()):
        return whole_text(text) if text == bare else SegmentedText((bare,), tuple(text.split(bare, 1)))  # most texts
    parts = list[str]()
    sentences = cut_sentences = 0
    for sentence in line or _sentences(text, language):
        before = len(parts)
        for part in _parts(sentence, fits):
            parts.append(part)
            sentences += has_letter(part)
            if sentences > max_sentences:
                raise TooManySentencesError
        cut_sentences += len(parts) > before + 1
    return SegmentedText(*_separate(parts), cut_sentences)


def bare_text(text: str, max_sentences: int) -> SegmentedText:
    """Returns a text as one sentence without surrounding white space.

    Raises TooManySentencesError if there must be none.
    """
    sentences, gaps = _separate([text])
    if len(sentences) > max_sentences:
        raise TooManySentencesError
    return SegmentedText(sentences, gaps)


def whole_text(text: str) -> SegmentedText:
    """Returns an unchanged text as one sentence."""
    return SegmentedText((text,), ("", ""))


def uncut_text(text: str) -> SegmentedText:
    """Returns an unchanged text as one sentence, unless it has no letter."""
    return whole_text(text) if has_letter(text) else SegmentedText((), (text,))


def has_letter(text: str) -> bool:
    """Returns whether a text has a letter: numbers, prices, times, punctuation and emoji stay as they are."""
    return any(map(str.isalpha, text))


def _sentences(text: str, language: str) -> Iterator[str]:
    """Yields the sentences of a text, each with its trailing white space, and the blank parts between its lines."""
    for match in LINE.finditer(text):
        line = match[0]
        yield from (line,) if is_blank(line) else segment(language, line)


def _parts(sentence: str, fits: Callable[[str], bool]) -> Iterator[str]:
    """Yields parts of a sentence that fit, or are single characters."""
    waiting = [sentence]
    while waiting:
        part = waiting.pop()
        bare = part.strip()
        if len(bare) < 2 or fits(bare):  # noqa: PLR2004 - a single character cannot be cut
            yield part
        else:
            start = len(part) - len(part.lstrip())
            offset = start + _cut_offset(bare)
            waiting += [part[offset:], part[:offset]]


def _cut_offset(sentence: str) -> int:
    """Returns where to cut: at the best kind of place that occurs, nearest to the middle."""
    middle = len(sentence) // 2
    for kind in CUTS:
        spans = [match.end() for match in kind.finditer(sentence)]
        if spans:
            return min(spans, key=lambda offset: abs(offset - middle))
    return middle


def _separate(parts: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Returns the parts with letters without white space, and the text before, between and after them."""
    text, spans = "", list[tuple[int, int]]()
    for part in parts:
        if has_letter(part):
            bare = part.strip()
            start = len(text) + part.index(bare)
            spans.append((start, start + len(bare)))
        text += part
    edges = [(0, 0), *spans, (len(text), len(text))]
    gaps = tuple(text[end:start] for (_, end), (start, _) in pairwise(edges))
    return tuple(text[start:end] for start, end in spans), gaps


class BlockSplitter:
    """Splits the blocks of a text with markup.

    Attributes:
        cut_sentences: as of a `SegmentedText`, for the blocks that were split last.
    """

    def __init__(self, split: Callable[[str, int], SegmentedText], max_sentences: int) -> None:
        """Stores a function that splits a block into at most a number of sentences, and the limit of all blocks."""
        self._split = split
        self._max_sentences = max_sentences
        self.cut_sentences = 0

    def __call__(self, blocks: Sequence[str]) -> list[list[tuple[int, int]]]:
        """Returns start and end of the sentences of each block."""
        self.cut_sentences = 0
        room = self._max_sentences
        spans = list[list[tuple[int, int]]]()
        for block in blocks:
            segmented = self._split(block, room)
            self.cut_sentences += segmented.cut_sentences
            room -= len(segmented.sentences)
            spans.append(segmented.spans)
        return spans


class TextSplitter:
    """Splits the texts of one job one after the other, and stops at the first sentence beyond the limit."""

    def __init__(self, job: Job, fits: Callable[[str], bool], max_sentences: int) -> None:
        """Starts before the first text.

        Args:
            fits: returns whether the model can read a sentence.
            max_sentences: the limit of all texts together, after cuts.
        """
        self._job = job
        self._fits = fits
        self._max_sentences = self._room = max_sentences
        self._numbers = count()

    def split(self, texts: Iterable[str]) -> Iterator[SegmentedText]:
        """Splits the next texts.

        Raises InvalidRequestError if there are too many sentences, if a text has several and an option allows one, or
        if its markup is malformed.
        """
        return map(self._split, texts)

    def _split(self, text: str) -> SegmentedText:
        job, number = self._job, next(self._numbers)
        one = job.options.hypotheses > 1 or bool(job.target_prefixes and job.target_prefixes[number])
        try:
            room = min(1, self._room) if one else self._room
            segmented = self._sentences(text, room) if job.reading is None else self._marked(text, job.reading, room)
        except TooManySentencesError:
            raise (self._several(number) if one and self._room else self._too_many()) from None
        except MarkupError as error:
            raise InvalidRequestError(job.text_field(number), str(error)) from error
        self._room -= len(segmented.sentences)
        return segmented

    def _marked(self, text: str, reading: Reading, max_sentences: int) -> SegmentedText:
        split = BlockSplitter(self._sentences if self._job.split_sentences else bare_text, max_sentences)
        document = read_document(text, reading.markup, split, reading.marker(text))
        escaper = reading.escaper(text, document.escaper)
        return SegmentedText(
            tuple(sentence.text for sentence in document.sentences),
            document.gaps,
            split.cut_sentences,
            tuple(SentenceMarkup(sentence, escaper, reading.rendering) for sentence in document.sentences),
        )

    def _sentences(self, text: str, max_sentences: int) -> SegmentedText:
        return split_text(text, self._job.direction.source, self._fits, max_sentences)

    def _several(self, number: int) -> InvalidRequestError:
        """Returns the error for a text of several sentences, if an option allows only one."""
        job, hypotheses = self._job, self._job.options.hypotheses
        problem = f"{job.text_field(number)} has several sentences, expected one; or set split_sentences to false"
        if job.target_prefixes and job.target_prefixes[number]:
            return InvalidRequestError(job.prefix_field(number), problem)
        return InvalidRequestError(f"{OPTIONS}.hypotheses", f"{hypotheses}: {problem}")

    def _too_many(self) -> InvalidRequestError:
        rows = self._job.options.rows
        each = f" of {rows} hypotheses each" if rows > 1 else ""
        return InvalidRequestError("text", f"expected at most {self._max_sentences} sentences{each} in total")


def add_context(model: TextModel, job: Job) -> None:
    """Puts the sentences before each tokenized sentence, as many as fit, in front of its tokens, each with a separator.

    They are those of the request's context, then those of the same text. A sentence with a separator has no context.
    """
    separator, prefix = tuple(model.tokenizer.encode(model.context_separator)), job.direction.source_prefix
    counting = any(getattr(job.fields, name) != getattr(DEFAULT_SEARCH, name) for name in _COUNTING)
    if not separator or counting or any(job.target_prefixes):
        return
    cut = split_text(job.context, job.direction.source, partial(model.fits, prefix), len(job.context))
    given = [(*ids, *separator) for ids in model.tokenizer.encode_all(cut.sentences)]
    before, number = deque[tuple[int, ...]](), -1
    for sentence in job.sentences:
        if sentence.number != number:
            before, number = deque(given), sentence.number
        while before and sum(map(len, before)) + len(sentence.source_ids) > model.max_source_tokens:
            before.popleft()
        rest = sentence.source_ids[len(prefix) :]
        if not _ends(rest, separator):
            context = tuple(chain.from_iterable(before))
            sentence.source_ids = (*prefix, *context, *rest)
            sentence.separators = len(_ends(context, separator))
        before.append((*rest[: len(rest) - len(model.source_suffix)], *separator))


def leave_context(model: TextModel, lacks: Callable[[Sentence], int], sentence: Sentence) -> bool:
    """Removes the translation of its context from that of a sentence; returns whether the rest lacks nothing."""
    if not sentence.separators:
        return True
    best, separator = sentence.best, tuple(model.tokenizer.encode_target(model.context_separator))
    ends = _ends(best.target_ids, separator)
    if (
        best.finish_reason is FinishReason.LENGTH
        or len(ends) != sentence.separators
        or ends[-1] == len(best.target_ids)
    ):
        return False
    own = best.without_start(ends[-1])
    score = sum(own.token_scores)
    ranked = normalize(score, len(own.token_scores), sentence.options.length_penalty)
    sentence.hypotheses = (own._replace(score=score, normalized_score=ranked),)
    return not lacks(sentence)


def _ends(ids: tuple[int, ...], part: tuple[int, ...]) -> list[int]:
    """Returns where each occurrence of a part ends."""
    return [end for end in range(len(part), len(ids) + 1) if ids[end - len(part) : end] == part]
