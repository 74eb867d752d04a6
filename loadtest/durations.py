"""Durations in a histogram of High Dynamic Range: percentiles to three digits, in memory that does not grow.

Histograms of several processes and intervals are added up without loss (Gil Tene, HdrHistogram). Knows nothing of what
took the time.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from hdrh.histogram import HdrHistogram

MICROSECONDS = 1_000_000
LONGEST_MICROSECONDS = 3600 * MICROSECONDS
DIGITS = 3
COUNT_BYTES = 4
# Enough points for a curve, closer to each other towards the end, where the slow requests are.
CURVE_PERCENTILES = (0.0, *(100 - 100 / 2 ** (step / 4) for step in range(1, 57)), 100.0)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """What is told of durations, in seconds: at least so many of a hundred are not longer."""

    p50: float
    p90: float
    p99: float
    p99_9: float
    max: float


class Durations:
    """Durations from a microsecond to an hour; shorter and longer ones count as these."""

    def __init__(self) -> None:
        # Made when there is something to count: most are of what never happens.
        self._made: HdrHistogram | None = None

    @property
    def _histogram(self) -> HdrHistogram:
        if self._made is None:
            self._made = HdrHistogram(1, LONGEST_MICROSECONDS, DIGITS, word_size=COUNT_BYTES)
        return self._made

    def record(self, seconds: float) -> None:
        """Adds one."""
        self._histogram.record_value(min(max(1, round(seconds * MICROSECONDS)), LONGEST_MICROSECONDS))

    @property
    def count(self) -> int:
        """How many there are."""
        return 0 if self._made is None else int(self._made.get_total_count())

    def percentile(self, percent: float) -> float | None:
        """Returns the smallest duration, to three digits, that at least `percent` % do not exceed; None without any."""
        if not self.count:
            return None
        # The library rounds the rank to the nearest; of a whole rank it makes none other.
        rank = max(1, math.ceil(round(percent / 100 * self.count, 6)))
        value = self._histogram.get_value_at_percentile(100 * rank / self.count)
        # That is the upper edge of a bin, which may lie above the longest of all.
        microseconds = min(value, self._histogram.get_max_value(), LONGEST_MICROSECONDS)
        return float(microseconds) / MICROSECONDS

    def percentiles(self) -> Percentiles | None:
        """Returns the usual percentiles; None if there are no durations."""
        found = [seconds for seconds in map(self.percentile, (50, 90, 99, 99.9, 100)) if seconds is not None]
        return Percentiles(*found) if found else None

    def curve(self) -> Iterator[tuple[float, float]]:
        """Yields percentiles with their durations in seconds, as far as there are durations between them."""
        for percent in CURVE_PERCENTILES if self.count else ():
            seconds = self.percentile(percent)
            if seconds is not None and (percent == 100.0 or self.count * (100 - percent) >= 100):  # noqa: PLR2004
                yield percent, seconds

    def add(self, other: Self) -> None:
        """Adds those of another histogram."""
        if other.count:
            self._histogram.add(other._histogram)

    def pack(self) -> bytes:
        """Returns what `add_packed` takes, for another process; no bytes if there are none."""
        return bytes(self._histogram.encode()) if self.count else b""

    def add_packed(self, packed: bytes) -> None:
        """Adds those of a histogram of another process."""
        if packed:
            self._histogram.decode_and_add(packed)
