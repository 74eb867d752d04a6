"""Puts a form of a term into a translation, with white space where words would touch, and updates the alignment."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from dragoman.serve.protect.alignment import UNSPACED, Alignment, Span
from dragoman.serve.protect.markup.placement import Interval

_UNSPACED = re.compile(f"[{UNSPACED}]")
_OPENING, _CLOSING = "([{", ".,;:!?)]}"


@dataclass(frozen=True, slots=True)
class TermEdit:
    """A part of a text that is replaced by a form of a term.

    Attributes:
        old: the replaced part of the old text.
        new: what replaces it, with white space around the form.
        span: of the form.
    """

    text: str
    old: Interval
    new: Interval
    span: Interval

    @classmethod
    def of(cls, text: str, interval: Interval, form: str) -> "TermEdit":
        """Returns the edit that puts a form into an interval."""
        before, after = text[: interval[0]], text[interval[1] :]
        in_gap = interval[0] == interval[1]
        left = " " * (_stand_apart(before, form) if in_gap else must_part(before, form))
        right = " " * (_stand_apart(form, after) if in_gap else must_part(form, after))
        start = len(before) + len(left)
        span = start, start + len(form)
        return cls(f"{before}{left}{form}{right}{after}", interval, (len(before), span[1] + len(right)), span)

    def moved(self, span: Interval) -> Interval:
        """Returns a span outside of the replaced part in the new text."""
        shift = self.new[1] - self.old[1] if span[0] >= self.old[1] else 0
        return span[0] + shift, span[1] + shift

    def align(self, alignment: Alignment, term: Interval) -> Alignment:
        """Returns the alignment of the new text: the form attends to the term, which is a part of the source."""
        source = [(span.start, span.end) for span in alignment.source]
        weights = np.array(alignment.weights, np.float64).reshape(len(alignment.target), len(source))
        rest = [(row, part) for row, span in enumerate(alignment.target) if (part := self._outside(span)) is not None]
        first = bisect_right([part for _, part in rest], self.span[0], key=itemgetter(0))
        attention = np.array([_overlap(span, term) for span in source], np.float64)
        rows = [weights[row] for row, _ in rest]
        rows.insert(first, attention / max(1.0, attention.sum()))
        target = [part for _, part in rest]
        target.insert(first, self.span)
        return Alignment.of(source, target, np.array(rows))

    def _outside(self, span: Span) -> Interval | None:
        """Returns the part of a unit outside of the replaced part; None: there is none."""
        start, end = self.old
        if span.end <= start or span.start >= end:
            return self.moved((span.start, span.end))
        if span.start < start:
            return span.start, start
        return self.moved((end, span.end)) if span.end > end else None


def _overlap(span: Interval, other: Interval) -> int:
    return max(0, min(span[1], other[1]) - max(span[0], other[0]))


def must_part(before: str, after: str) -> bool:
    """Returns whether a space must part two parts of a text: a word from the word or the punctuation before it."""
    left, right = before[-1:], after[:1]
    words = right.isalnum() and (left.isalnum() or left in _CLOSING) and left != ""
    return words and not _UNSPACED.match(left) and not _UNSPACED.match(right)


def _stand_apart(before: str, after: str) -> bool:
    """Returns whether a space must part a text from what is put next to it."""
    left, right = before[-1:], after[:1]
    open_or_blank = left in ("", *_OPENING) or left.isspace()
    closing_or_blank = right in ("", *_CLOSING) or right.isspace()
    return not (open_or_blank or closing_or_blank or _UNSPACED.match(left) or _UNSPACED.match(right))
