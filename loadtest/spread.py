"""Figures of several rounds as one: their median and how far they spread; and the ratio of two systems, by round.

A ratio is taken inside each round, where both systems met the same machine. Knows nothing of what was measured.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, smallest and largest of the figures of all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Self:
        """Returns the spread of the figures, at least one."""
        return cls(statistics.median(figures), min(figures), max(figures))


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Returns how many times theirs ours is.

    Args:
        ours: figures of one system, round by round.
        theirs: those of another one, from the same rounds.
    """
    return Spread.of([our / their for our, their in zip(ours, theirs, strict=True)])
