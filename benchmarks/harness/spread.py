"""Figures of several rounds as one: their median and how far they spread; and the ratio of two systems, by round.

A ratio is taken inside each round, where both systems met the same machine. Knows nothing of what was measured.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

# Smaller figures are shown with a digit behind the point.
FINE_BELOW = 100


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

    def format(self, form: str) -> str:
        """Returns median, smallest and largest, each in a form of `str.format`: as in `237 (125-241)`."""
        return f"{form.format(self.median)} ({form.format(self.low)}-{form.format(self.high)})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Spread:
    """Returns how many times theirs ours is.

    Args:
        ours: figures of one system, round by round.
        theirs: those of another one, from the same rounds.
    """
    return Spread.of([our / their for our, their in zip(ours, theirs, strict=True)])


def format_spread(figures: Sequence[float], base: Sequence[float] | None) -> str:
    """Returns the median of figures and how many times those of a base they are.

    Args:
        figures: round by round.
        base: those of what this is compared with, from the same rounds; None: with nothing.

    Returns:
        As in `3,402, 1.66x (1.61-1.70)`: median, median of the ratios, their smallest and their largest.
    """
    return format_figures(figures, None if base is None else ratio(figures, base))


def format_figures(figures: Sequence[float], times: Spread | None) -> str:
    """Returns the median of figures, and a ratio behind it if there is one."""
    middle = Spread.of(figures).median
    median = f"{middle:.1f}" if middle < FINE_BELOW else f"{middle:,.0f}"
    return median if times is None else f"{median}, {format_ratio(times)}"


def format_range(figures: Sequence[float], form: str) -> str:
    """Returns figures, round by round, as their spread; one figure as it is."""
    return form.format(figures[0]) if len(figures) == 1 else Spread.of(figures).format(form)


def format_ratio(times: Spread) -> str:
    """Returns a ratio as in `1.66x (1.61-1.70)`: median, smallest and largest of the rounds."""
    return f"{times.median:.2f}x ({times.low:.2f}-{times.high:.2f})"
