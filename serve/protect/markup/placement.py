"""Finds places for the tags of a sentence in its translation.

An element gets the interval of the translation with the largest sum of inside attention minus outside attention, in
linear time (Kadane). Elements are placed from the outside to the inside, and next to each other in the order of their
sums. So each tag occurs once, and all are nested as before. Points get the gap that the least attention crosses. The
final punctuation of the translation attends to that of the source, whatever the model attends to.

Shapes: S source tokens, U units of the translation.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.protect.alignment import (
    SENTENCE_MARKS,
    Alignment,
    find_final,
    find_words,
    is_punctuation,
    is_word,
    overlap_shares,
)
from dragoman.serve.protect.markup.blocks import MarkKind
from dragoman.serve.protect.markup.sentences import MarkedSentence, Node

Vector = NDArray[np.float64]
Interval = tuple[int, int]
# Stands for a protected interval, which starts and ends in its sentence.
_WHOLE = Node(MarkKind.OPEN, 0, 0)


def find_offset(sentence: MarkedSentence, translation: str, alignment: Alignment, node: Node) -> int:
    """Returns where the translation of a node of the sentence begins, by the alignment; never inside of a word."""
    return word_start(translation, Placer(sentence.text, translation, alignment).find_interval(node)[0])


def word_start(text: str, offset: int) -> int:
    """Returns an offset, or the beginning of the word that it lies in."""
    while _splits_word(text, offset):
        offset -= 1
    return offset


@dataclass(frozen=True, slots=True)
class Placed:
    """A node and its characters of the translation; an empty interval is a gap.

    Attributes:
        before, after: the tags, with the white space that the translation lacks around them.
    """

    interval: Interval
    before: str
    after: str
    kept: bool
    children: tuple["Placed", ...]


@dataclass(frozen=True, slots=True)
class Units:
    """Parts of the translation between which tags may stand, in order, and attention to each source token, [U, S]."""

    spans: Sequence[Interval]
    attention: Vector

    @classmethod
    def of(cls, spans: Sequence[Interval], tokens: Sequence[Interval], attention: Vector) -> "Units":
        """Returns units with the mean attention of their tokens, which is [T, S]."""
        return cls(spans, overlap_shares(spans, tokens) @ attention)

    def linked(self, interval: Interval, attention: Vector) -> "Units":
        """Returns the units with other attention of their characters inside of an interval."""
        shares = overlap_shares(self.spans, [(0, interval[0]), interval])[:, 1:]  # [U, 1]
        return Units(self.spans, (1 - shares) * self.attention + shares * attention)

    def inside(self, interval: Interval) -> slice:
        """Returns the units inside of an interval."""
        first = bisect_left(self.spans, interval[0], key=itemgetter(0))
        last = bisect_right(self.spans, interval[1], key=itemgetter(1))
        return slice(first, max(first, last))

    def touched(self, interval: Interval) -> slice:
        """Returns the units that overlap an interval."""
        first = bisect_right(self.spans, interval[0], key=itemgetter(1))
        last = bisect_left(self.spans, interval[1], key=itemgetter(0))
        return slice(first, max(first, last))


@dataclass(frozen=True, slots=True)
class _Gaps:
    """The gaps before, between and after the U units of an interval.

    Attributes:
        spans: the characters of each gap.
        allowed: gaps without text that are not inside of an element that has its interval, bool [U + 1].
        attention: of the units, [U, S].
        whole: whether the interval cuts no unit.
    """

    spans: Sequence[Interval]
    allowed: NDArray[np.bool_]
    attention: Vector
    whole: bool

    @classmethod
    def of(cls, text: str, units: Units, interval: Interval, taken: Sequence[tuple[Node, Interval]]) -> "_Gaps":
        """Returns the gaps of an interval of a text."""
        inside = units.inside(interval)
        edges = [interval[0], *(offset for span in units.spans[inside] for offset in span), interval[1]]
        spans = list(zip(edges[::2], edges[1::2], strict=True))
        starts, ends = np.array(spans).T
        allowed = np.array([not text[start:end].strip() for start, end in spans])
        whole = bool(allowed.all())
        for node, (start, end) in taken:
            if not node.starts:
                allowed &= starts >= end
            elif not node.ends:
                allowed &= ends <= start
            else:
                allowed &= (starts <= start) | (ends >= end)
        return cls(spans, allowed, units.attention[inside], whole)

    def best(self, before: Vector, after: Vector) -> Interval:
        """Returns the gap that the least attention crosses, given the source before and after it, [S] each."""
        afterwards, earlier = self.attention @ after, self.attention @ before
        crossing = np.concatenate(([0.0], (afterwards - earlier).cumsum()))
        crossing[~self.allowed] = np.inf
        return self.spans[int(crossing.argmin())]


class _Taken:
    """Intervals with their element, kept text or term, and whether each word and each token overlaps one."""

    def __init__(self, words: Units, tokens: Units, intervals: Iterable[Interval] = ()) -> None:
        self.words, self.tokens = (np.zeros(len(units.spans), np.bool_) for units in (words, tokens))
        self._units = words, tokens
        self._starts, self._ends = list[int](), list[int]()
        for interval in intervals:
            self.add(interval)

    def add(self, interval: Interval) -> None:
        """Adds an interval, and joins it with those that it overlaps."""
        start, end = interval
        first = bisect_right(self._ends, start)
        last = max(first, bisect_left(self._starts, end))
        self._starts[first:last] = [min([start, *self._starts[first:last]])]
        self._ends[first:last] = [max([end, *self._ends[first:last]])]
        words, tokens = self._units
        self.words[words.touched(interval)] = True
        self.tokens[tokens.touched(interval)] = True

    def overlaps(self, interval: Interval) -> bool:
        """Returns whether one overlaps an interval."""
        index = bisect_right(self._ends, interval[0])
        return index < len(self._starts) and self._starts[index] < interval[1]


@dataclass(frozen=True, slots=True)
class _End:
    """One end of a node in the source.

    Attributes:
        edge: the last character of the node.
        own: marks at both ends of kept text, such as brackets; None: the node is an element.
        enclosed: whether such marks stand next to the node.
    """

    edge: str
    own: set[str] | None
    enclosed: bool

    @classmethod
    def of(cls, node: Node, source: str) -> tuple["_End", "_End"]:
        """Returns both ends of a node."""
        inner = source[node.start : node.end].strip()
        own = _marks(inner) | _marks(inner[::-1]) if node.kind is MarkKind.KEPT else None
        before, after = _marks(source[: node.start][::-1]), _marks(source[node.end :])
        return cls(inner[0], own, bool(before)), cls(inner[-1], own, bool(after))

    def lacks(self, unit: str) -> bool:
        """Returns whether a part of the translation is punctuation that the node does not have at this end.

        Kept text replaces its interval: it must not replace a comma or a period, nor a bracket that stands around it.
        """
        if not all(map(is_punctuation, unit)):
            return False
        if self.own is None:
            return not is_punctuation(self.edge)
        if not unit.strip(SENTENCE_MARKS):
            return self.edge not in SENTENCE_MARKS
        return self.enclosed and self.own.isdisjoint(unit)


class Placer:
    """Finds the intervals for the tags of one sentence, by the alignment of its translation."""

    def __init__(self, source: str, translation: str, alignment: Alignment, protected: Sequence[Interval] = ()) -> None:
        self._source = source
        self._protected = protected
        self._translation = translation
        tokens = [(span.start, span.end) for span in alignment.target]
        attention = np.array(alignment.weights, np.float64).reshape(len(tokens), len(alignment.source))
        source_tokens = [(span.start, span.end) for span in alignment.source]
        end, goal = find_final(translation), overlap_shares([find_final(source)], source_tokens)
        self._words = Units.of(_words(translation, tokens), tokens, attention).linked(end, goal)
        pieces = sorted({span for span in tokens if span[0] < span[1]})
        self._tokens = Units.of(pieces, tokens, attention).linked(end, goal)
        self._terms = _Taken(self._words, self._tokens, protected)
        # Places of kept texts in the translation.
        self._copies = dict[str, list[Interval]]()
        self._source_words = _words(source, source_tokens)
        # Characters of each source token, [S, 2].
        self._source_tokens = np.array(source_tokens).reshape(-1, 2)

    def place(self, nodes: Sequence[Node], interval: Interval) -> tuple[Placed, ...]:
        """Returns the nodes with their intervals inside of an interval; they stand next to each other in the source."""
        if not nodes:
            return ()
        spans = self._place_spans(nodes, interval)
        if len(spans) == len(nodes):
            placed = [self._placed(node, spans[index]) for index, node in enumerate(nodes)]
            return tuple(sorted(placed, key=lambda item: item.interval))
        taken = [(nodes[index], span) for index, span in spans.items()]
        taken += ((_WHOLE, span) for span in self._protected)
        words, tokens = (_Gaps.of(self._translation, units, interval, taken) for units in (self._words, self._tokens))
        start = max((span[1] for node, span in taken if not node.starts), default=interval[0])
        placed = list[Placed]()
        # Where the last point of each gap stands: the next one must not stand before it.
        last = dict[Interval, int]()
        for index, node in enumerate(nodes):
            if index in spans:
                placed.append(self._placed(node, spans[index]))
            else:
                between_words = words.whole and self._units(node) is self._words
                kinds = (words, tokens) if between_words else (tokens, words)
                gaps = next((kind for kind in kinds if kind.allowed.any()), None)
                gap = (start, start) if gaps is None else gaps.best(*self._sides(node.start))
                gap = self._final_gap(node, interval) or gap
                if node.kind is MarkKind.SPACE:
                    placed.append(Placed(gap, node.before, "", kept=True, children=()))
                    continue
                offset, pads = self._pad(node, gap, last.get(gap, 0))
                last[gap] = offset
                placed.append(self._placed(node, (offset, offset), pads))
        return tuple(sorted(placed, key=lambda item: item.interval))

    def _final_gap(self, node: Node, interval: Interval) -> Interval | None:
        """Returns the gap before the final punctuation for a point that stands there in the source."""
        end = find_final(self._source)[0]
        if node.kind is not MarkKind.POINT or interval != (0, len(self._translation)) or not 0 < end <= node.start:
            return None
        offset = find_final(self._translation)[0]
        return offset, offset

    def find_interval(self, node: Node, taken: Sequence[Interval] = ()) -> Interval:
        """Returns the interval of a node outside of taken ones, or else the end of its gap."""
        everything = 0, len(self._translation)
        score, interval = self._largest_sum(node, everything, _Taken(self._words, self._tokens, taken))
        if score > 0:
            return interval
        gaps = _Gaps.of(self._translation, self._words, everything, [(node, item) for item in taken])
        end = gaps.best(*self._sides(node.start))[1] if gaps.allowed.any() else everything[1]
        return end, end

    def attention(self, node: Node, interval: Interval) -> float:
        """Returns the attention of an interval of the translation to a node."""
        inside = self._tokens.attention[self._tokens.touched(interval)] @ self._shares(node.start, node.end)
        return float(inside.sum())

    def _placed(self, node: Node, interval: Interval, pads: tuple[str, str] = ("", "")) -> Placed:
        kept = node.kind is MarkKind.KEPT
        if node.kind in (MarkKind.KEPT, MarkKind.POINT):
            pads = self._apart(node, interval, pads)
        before, after = f"{pads[0]}{node.before}", f"{node.after}{pads[1]}"
        return Placed(interval, before, after, kept, () if kept else self.place(node.children, interval))

    def _place_spans(self, nodes: Sequence[Node], interval: Interval) -> dict[int, Interval]:
        """Returns the intervals of the nodes that get one, by index; they do not overlap."""
        spans = dict[int, Interval]()
        start, end = interval
        for index, node in enumerate(nodes):
            if not node.starts:
                start = self._best_edge(node, (start, end))
                spans[index] = interval[0], start
            elif not node.ends:
                end = self._best_edge(node, (start, end))
                spans[index] = end, interval[1]
        spanning = MarkKind.OPEN, MarkKind.KEPT
        whole = [index for index, node in enumerate(nodes) if node.kind in spanning and index not in spans]
        if whole:
            spans |= self._place_whole({index: nodes[index] for index in whole}, (start, end))
        return spans

    def _place_whole(self, nodes: Mapping[int, Node], free: Interval) -> dict[int, Interval]:
        """Returns the intervals of elements and kept texts that get one, the best first."""
        spans = dict[int, Interval]()
        taken = _Taken(self._words, self._tokens)
        scored = {index: self._best_interval(node, free, taken) for index, node in nodes.items()}
        for index in sorted(scored, key=lambda item: (-scored[item][0], item)):
            score, span = scored[index]
            if score > 0 and taken.overlaps(span):
                score, span = self._best_interval(nodes[index], free, taken)
            if score > 0:
                spans[index] = span
                taken.add(span)
        return spans

    def _best_interval(self, node: Node, free: Interval, taken: _Taken) -> tuple[float, Interval]:
        """Returns the best interval outside of taken ones, and its sum, which is 0 if there is none."""
        if node.kind is not MarkKind.KEPT:
            return self._largest_sum(node, free, taken)
        avoided = taken, self._terms
        return self._best_copy(node, free, avoided) or self._largest_sum(node, free, *avoided)

    def _best_copy(self, node: Node, free: Interval, taken: Sequence[_Taken]) -> tuple[float, Interval] | None:
        """Returns where the translation has a kept text unchanged; it comes before all intervals by attention."""
        copies = self._find_copies(node)
        if not copies:
            return None
        inside = self._tokens.attention @ self._shares(node.start, node.end)  # [U]
        sums = np.concatenate(([0.0], inside.cumsum()))
        units = [self._tokens.inside(copy) for copy in copies]
        scores = sums[[unit.stop for unit in units]] - sums[[unit.start for unit in units]]
        for index in (-scores).argsort(kind="stable"):
            start, end = copies[index]
            if free[0] <= start and end <= free[1] and not any(item.overlaps((start, end)) for item in taken):
                return len(self._translation) + float(scores[index]), (start, end)
        return None

    def _find_copies(self, node: Node) -> list[Interval]:
        """Returns the intervals of a kept text in the translation that split no word that is whole in the source."""
        source, text = self._source, self._translation
        kept = source[node.start : node.end]
        if kept not in self._copies:
            found = (hit.span() for hit in re.finditer(re.escape(kept), text))
            ends = node.start, node.end
            self._copies[kept] = [
                span
                for span in found
                if not any(
                    _splits_word(text, offset) and not _splits_word(source, end)
                    for offset, end in zip(span, ends, strict=True)
                )
            ]
        return self._copies[kept]

    def _largest_sum(self, node: Node, free: Interval, *taken: _Taken) -> tuple[float, Interval]:
        """Returns the shortest interval of units with the largest sum, and the sum."""
        units = self._units(node)
        scores = self._scores(node, units)
        for item in taken:
            blocked = item.words if units is self._words else item.tokens
            scores[blocked] = -len(scores) - 1  # less than all others together
        inside = units.inside(free)
        sums = np.concatenate(([0.0], scores[inside].cumsum()))
        least = np.minimum.accumulate(sums)
        last = int((sums - least).argmax())
        first = last - int(sums[: last + 1][::-1].argmin())
        if first == last:
            return 0.0, (0, 0)
        spans = self._trimmed(node, units.spans[inside][first:last])
        return float(sums[last] - sums[first]), (spans[0][0], spans[-1][1])

    def _best_edge(self, node: Node, interval: Interval) -> int:
        """Returns the best interval for the only tag of an element that goes on before or after its sentence."""
        units = self._units(node)
        inside = units.inside(interval)
        sums = np.concatenate(([0.0], self._scores(node, units)[inside].cumsum()))
        spans = units.spans[inside]
        if node.starts:
            first = int((sums[-1] - sums)[::-1].argmax())
            return spans[len(spans) - first][0] if first else interval[1]
        last = int(sums.argmax())
        return spans[last - 1][1] if last else interval[0]

    def _trimmed(self, node: Node, spans: Sequence[Interval]) -> Sequence[Interval]:
        """Returns the units of an interval without punctuation at its ends that the source does not have there."""
        ends = _End.of(node, self._source)
        first, last = 0, len(spans)
        while last - first > 1 and ends[1].lacks(self._translation[slice(*spans[last - 1])]):
            last -= 1
        while last - first > 1 and ends[0].lacks(self._translation[slice(*spans[first])]):
            first += 1
        return spans[first:last]

    def _units(self, node: Node) -> Units:
        """Returns words, or tokens for a node with an edge inside of a word."""
        for edge in (node.start, node.end):
            index = bisect_right(self._source_words, edge, key=itemgetter(1))
            if index < len(self._source_words) and self._source_words[index][0] < edge:
                return self._tokens
        return self._words

    def _shares(self, start: int, end: int) -> Vector:
        """Returns the share of each source token inside of an interval, [S]."""
        tokens = self._source_tokens
        overlaps = (np.minimum(tokens[:, 1], end) - np.maximum(tokens[:, 0], start)).clip(0)
        shares: Vector = overlaps / np.maximum(1, tokens[:, 1] - tokens[:, 0])
        return shares

    def _scores(self, node: Node, units: Units) -> Vector:
        """Returns inside minus outside attention of each unit, [U]."""
        scores: Vector = units.attention @ (2 * self._shares(node.start, node.end) - 1)
        return scores

    def _sides(self, offset: int) -> tuple[Vector, Vector]:
        """Returns the shares of each source token before and after an offset, [S] each."""
        return self._shares(0, offset), self._shares(offset, len(self._source))

    def _pad(self, node: Node, gap: Interval, first: int) -> tuple[int, tuple[str, str]]:
        """Returns the offset of a node without interval, from `first` on, and the space that sets it apart."""
        left, right = gap
        spaced_before, spaced_after = node.spaced
        apart, glued = spaced_before or spaced_after, left == right
        offset = max(right if spaced_before else left, first)
        if node.kind is MarkKind.OPEN:
            pads = "", ""  # its text is elsewhere
        elif offset == 0:
            pads = "", " " * apart
        elif offset == len(self._translation):
            pads = " " * apart, ""
        else:
            before = spaced_before and glued
            pads = " " * before, " " * (spaced_after and not before and offset == right)
        if self._translation[offset : offset + 1] in SENTENCE_MARKS:
            pads = pads[0], ""  # no space stands before a comma
        return offset, pads

    def _apart(self, node: Node, interval: Interval, pads: tuple[str, str]) -> tuple[str, str]:
        """Returns the white space that also keeps a node apart from words that it does not touch in the source."""
        source, text, (start, end) = self._source, self._translation, interval
        left = is_word(_before(text, start)) and not is_word(_before(source, node.start))
        right = is_word(text[end : end + 1]) and not is_word(source[node.end : node.end + 1])
        return pads[0] or " " * left, pads[1] or " " * right


def _words(text: str, tokens: Sequence[Interval]) -> list[Interval]:
    """Returns the words of a text, and each of its punctuation marks."""
    parts = list[Interval]()
    for start, end in find_words(text, tokens):
        marks = all(map(is_punctuation, text[start:end]))
        parts += ((offset, offset + 1) for offset in range(start, end)) if marks else [(start, end)]
    return parts


def _marks(text: str) -> set[str]:
    """Returns the punctuation at the beginning of a text, such as brackets, without that of sentences and clauses."""
    return set(takewhile(is_punctuation, text.lstrip())).difference(SENTENCE_MARKS)


def _before(text: str, offset: int) -> str:
    """Returns the character before an offset, if there is one."""
    return text[max(0, offset - 1) : offset]


def _splits_word(text: str, offset: int) -> bool:
    """Returns whether letters or digits stand on both sides of an offset."""
    return 0 < offset < len(text) and is_word(text[offset - 1]) and is_word(text[offset])
