"""Alignments: which characters of a translation come from which characters of its text.

The decoder attends from each target token to each source token. An `Alignment` holds these weights for the tokens or
the words of one sentence, by their characters. Pure functions.

Shapes: S source units, T target units, U units, O other units.
"""

import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer

Weights = NDArray[np.float64]
Offsets = Sequence[tuple[int, int]]


Rows = Annotated[Sequence[Sequence[float]], PlainSerializer(lambda rows: list(map(list, rows)))]


@dataclass(frozen=True, slots=True)
class Span:
    """The characters from `start` to before `end`, counted in Unicode code points."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Link:
    """A target unit and the source unit that it translates, by their indices."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Alignment:
    """The alignment of one sentence.

    Attributes:
        source: units of the text.
        target: units of the translation.
        weights: attention of each target unit to each source unit; the rest to 1 is attention to special tokens.
        links: at most one per target unit, in their order.
    """

    source: tuple[Span, ...]
    target: tuple[Span, ...]
    weights: Rows
    links: tuple[Link, ...]

    @classmethod
    def of(cls, source: Offsets, target: Offsets, weights: Weights) -> "Alignment":
        """Returns the alignment with these weights, [T, S]."""
        # The precision of the model and of gRPC: all interfaces return the same numbers. Arrays take an eighth of the
        # memory of tuples.
        rows = tuple(array("f", row.tobytes()) for row in weights.astype(np.float32))
        return cls(_spans(source), _spans(target), rows, tuple(_links(weights)))

    def __str__(self) -> str:
        """Returns the links as `0:3-0:5 4:7-6:9`: characters of the text and of the translation, ends excluded."""
        pairs = ((self.source[link.source], self.target[link.target]) for link in self.links)
        return " ".join(f"{source.start}:{source.end}-{target.start}:{target.end}" for source, target in pairs)

    def shifted(self, source: int, target: int) -> "Alignment":
        """Returns the alignment inside a text and a translation in which the sentence starts at these characters."""
        return Alignment(_shifted(self.source, source), _shifted(self.target, target), self.weights, self.links)


def align_tokens(
    text: str, source: Offsets, translation: str, target: Offsets, attention: NDArray[np.float32]
) -> Alignment:
    """Returns the alignment of tokens with these characters; attention [T, S] is without special source tokens."""
    return Alignment.of(_visible(text, source), _visible(translation, target), attention.astype(np.float64))


def align_words(
    text: str, source: Offsets, translation: str, target: Offsets, attention: NDArray[np.float32]
) -> Alignment:
    """Returns the alignment of the words of a sentence; arguments as those of `align_tokens`.

    The attention of a word is the mean over its tokens. The attention to a word is the sum over its tokens.
    """
    source_tokens, target_tokens = _visible(text, source), _visible(translation, target)
    source_words, target_words = find_words(text, source_tokens), find_words(translation, target_tokens)
    means, sums = overlap_shares(target_words, target_tokens), overlap_shares(source_tokens, source_words)
    return Alignment.of(source_words, target_words, means @ attention.astype(np.float64) @ sums)


ALIGN = {"tokens": align_tokens, "words": align_words}


def compose(first: Sequence[Alignment], last: Sequence[Alignment]) -> tuple[Alignment, ...]:
    """Returns alignments through a pivot text; `first` lead from it to the text, `last` from the translation to it."""
    return tuple(_composed([item for item in first if _meet(item.target, one.source)], one) for one in last)


def _composed(first: Sequence[Alignment], last: Alignment) -> Alignment:
    source = [_pair(span) for item in first for span in item.source]
    between = [_pair(span) for item in first for span in item.target]
    weights = np.zeros((len(between), len(source)))
    row = column = 0
    for item in first:
        rows, columns = len(item.target), len(item.source)
        weights[row : row + rows, column : column + columns] = _matrix(item)
        row, column = row + rows, column + columns
    # The models cut the pivot text into different units.
    shares = overlap_shares([_pair(span) for span in last.source], between)
    return Alignment.of(source, [_pair(span) for span in last.target], _matrix(last) @ shares @ weights)


def _matrix(alignment: Alignment) -> Weights:
    """Returns the weights, float64 [T, S]."""
    return np.array(alignment.weights, np.float64).reshape(len(alignment.target), len(alignment.source))


def _meet(some: Sequence[Span], others: Sequence[Span]) -> bool:
    return bool(some and others) and some[0].start < others[-1].end and others[0].start < some[-1].end


# Characters of scripts that put no space between words, for regular expressions: Thai to Tibetan, Myanmar, Khmer, and
# East Asian with its punctuation.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u2e80-\u312f\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff9f\U00020000-\U0003ffff"
)
_UNSPACED = re.compile(f"[{UNSPACED}]")


def find_words(text: str, tokens: Offsets) -> list[tuple[int, int]]:
    """Returns the words of a text, and its punctuation as words of their own.

    White space ends a word; punctuation ends it at its beginning and its end only. In scripts without spaces, each
    token is a word.
    """
    edges = {offset for token in tokens for offset in token}
    return [word for run in re.finditer(r"\S+", text) for word in _words(text, *run.span(), edges)]


def _words(text: str, start: int, end: int, edges: set[int]) -> Iterator[tuple[int, int]]:
    """Yields the words between two white spaces."""
    first, last = start, end
    while first < last and is_punctuation(text[first]):
        first += 1
    while first < last and is_punctuation(text[last - 1]):
        last -= 1
    offsets = [start, first, last, end]
    if _UNSPACED.search(text, start, end):
        offsets += (
            offset
            for offset in range(start + 1, end)
            if offset in edges and _UNSPACED.search(text, offset - 1, offset + 1)
        )
    yield from ((left, right) for left, right in pairwise(sorted(offsets)) if left < right)


# Punctuation of sentences and clauses.
SENTENCE_MARKS = ".!?:;,\u2026\u3002\uff0e\u0964\uff01\uff1f\u061f\uff1a\uff1b\u061b\uff0c\u3001\u060c"


def find_final(text: str) -> tuple[int, int]:
    """Returns the characters of the final punctuation of a text, which may be none."""
    bare = text.rstrip()
    return len(bare.rstrip(SENTENCE_MARKS)), len(bare)


def is_word(character: str) -> bool:
    """Returns whether a character is a letter or digit of a script with spaces between words; none is not."""
    return character.isalnum() and not _UNSPACED.match(character)


def is_punctuation(character: str) -> bool:
    """Returns whether a character is punctuation or a symbol."""
    return unicodedata.category(character)[0] in "PS"


def _visible(text: str, tokens: Offsets) -> list[tuple[int, int]]:
    """Returns the characters of each token without surrounding white space.

    A token without visible characters, such as a lone word start or the first byte of a character, gets those of the
    next token that has some; after the last such token, those of the last.
    """
    spans = list[tuple[int, int]]()
    following: tuple[int, int] | None = None
    for start, end in reversed(tokens):
        part = text[start:end]
        left = start + len(part) - len(part.lstrip())
        if bare := part.strip():
            following = left, left + len(bare)
        spans.append(following or (len(text), len(text)))
    spans.reverse()
    last = next((span for span in reversed(spans) if span[0] < span[1]), (0, 0))
    return [span if span[0] < span[1] else last for span in spans]


def overlap_shares(units: Offsets, others: Offsets) -> Weights:
    """Returns the share of each unit in each of the others, [U, O]; rows sum to 1, or to 0 without overlap."""
    left, right = (np.array(spans, np.int64).reshape(-1, 2) for spans in (units, others))
    ends = np.minimum(left[:, np.newaxis, 1], right[np.newaxis, :, 1])
    overlaps = (ends - np.maximum(left[:, np.newaxis, 0], right[np.newaxis, :, 0])).clip(0)  # [U, O]
    shares: Weights = overlaps / np.maximum(1, overlaps.sum(axis=1, keepdims=True))
    return shares


def _links(weights: Weights) -> Iterator[Link]:
    """Yields the source unit with the most attention, unless special tokens have more, for each row of [T, S]."""
    if not weights.size:
        return
    best = weights.argmax(axis=1)
    linked = weights.max(axis=1) > 1 - weights.sum(axis=1)
    yield from (Link(source, target) for target, source in enumerate(best.tolist()) if linked[target])


def _spans(offsets: Offsets) -> tuple[Span, ...]:
    return tuple(Span(start, end) for start, end in offsets)


def _pair(span: Span) -> tuple[int, int]:
    return span.start, span.end


def _shifted(spans: Sequence[Span], characters: int) -> tuple[Span, ...]:
    return tuple(Span(span.start + characters, span.end + characters) for span in spans)
