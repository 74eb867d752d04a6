"""Counts and durations of requests, by time slice and kind; tallies of several processes add up without loss.

Every request that was sent is answered, failed or in flight. Latency percentiles are those of answered requests. The
histograms are HdrHistograms (Gil Tene): percentiles to three digits in bounded memory.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from hdrh.histogram import HdrHistogram

from loadtest.clients import GONE, OK
from loadtest.plan import WARM_UP, Plan, Slice
from loadtest.scenario import LoadRequest, Objective

MICROSECONDS = 1_000_000
LONGEST_MICROSECONDS = 3600 * MICROSECONDS
DIGITS = 3
COUNT_BYTES = 4
# The points get denser toward the slow requests at the end.
CURVE_PERCENTILES = (0.0, *(100 - 100 / 2 ** (step / 4) for step in range(1, 57)), 100.0)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of durations, in seconds."""

    p50: float
    p90: float
    p99: float
    p99_9: float
    max: float


class PercentilePoint(NamedTuple):
    """A point of the distribution of durations."""

    percent: float
    seconds: float


class LatencyHistogram:
    """A histogram of durations, clamped to the range from a microsecond to an hour."""

    # Created on demand: most histograms stay empty.
    _made: HdrHistogram | None = None

    @property
    def _histogram(self) -> HdrHistogram:
        if self._made is None:
            self._made = HdrHistogram(1, LONGEST_MICROSECONDS, DIGITS, word_size=COUNT_BYTES)
        return self._made

    def __getstate__(self) -> bytes | None:
        # Compressed, for the pipe between two processes.
        return bytes(self._histogram.encode()) if self.count else None

    def __setstate__(self, packed: bytes) -> None:
        self._histogram.decode_and_add(packed)

    def record(self, seconds: float) -> None:
        """Adds a duration."""
        self._histogram.record_value(min(max(1, round(seconds * MICROSECONDS)), LONGEST_MICROSECONDS))

    @property
    def count(self) -> int:
        """Number of durations."""
        return 0 if self._made is None else int(self._made.get_total_count())

    def percentile(self, percent: float) -> float | None:
        """Returns the smallest duration that at least `percent` % do not exceed, or None; three exact digits."""
        if not self.count:
            return None
        # The library rounds to the nearest rank; passing the percentile of a whole rank keeps that rank.
        rank = max(1, math.ceil(round(percent / 100 * self.count, 6)))
        value = self._histogram.get_value_at_percentile(100 * rank / self.count)
        # The value is the upper edge of a bin, which may exceed the longest duration.
        microseconds = min(value, self._histogram.get_max_value(), LONGEST_MICROSECONDS)
        return float(microseconds) / MICROSECONDS

    def percentiles(self) -> Percentiles | None:
        """Returns the usual percentiles; None if the histogram is empty."""
        found = [seconds for seconds in map(self.percentile, (50, 90, 99, 99.9, 100)) if seconds is not None]
        return Percentiles(*found) if found else None

    def curve(self) -> Iterator[PercentilePoint]:
        """Yields the distribution, as far as the number of durations supports them."""
        for percent in CURVE_PERCENTILES if self.count else ():
            seconds = self.percentile(percent)
            if seconds is not None and (percent == 100.0 or self.count * (100 - percent) >= 100):  # noqa: PLR2004
                yield PercentilePoint(percent, seconds)

    def add(self, other: Self) -> None:
        """Adds the durations of another histogram."""
        if other.count:
            self._histogram.add(other._histogram)


@dataclass(frozen=True, slots=True)
class Sample:
    """An ended request. Times are seconds from the start of the run.

    Attributes:
        intended_seconds: planned send time; in a closed loop, the actual one.
        sent_seconds: actual send time.
        outcome: OK, GONE, or the status and reason of the failure.
        first_seconds: time of the first part of a streamed answer; None if no part was streamed.
    """

    request: LoadRequest
    intended_seconds: float
    sent_seconds: float
    ended_seconds: float
    outcome: str
    first_seconds: float | None = None

    @property
    def latency_seconds(self) -> float:
        """Latency from the intended send time."""
        return self.ended_seconds - self.intended_seconds

    @property
    def first_token_seconds(self) -> float | None:
        """Time from the intended send time to the first part; None if no part was streamed."""
        return None if self.first_seconds is None else self.first_seconds - self.intended_seconds

    @property
    def lag_seconds(self) -> float:
        """Delay of the generator, not of the server."""
        return self.sent_seconds - self.intended_seconds

    def within(self, objective: Objective | None) -> bool:
        """Returns whether the times meet the objective's bounds. The first-token bound applies to streams only."""
        if objective is None:
            return True
        first_seconds, most_seconds = self.first_token_seconds, objective.first_token_seconds
        return self.latency_seconds <= objective.latency_seconds and (
            first_seconds is None or most_seconds is None or first_seconds <= most_seconds
        )


@dataclass(slots=True)
class Tally:
    """Counts and durations of some requests.

    Attributes:
        texts: of the answered requests.
        good: requests answered within the bounds of the objective.
        last_seconds: end of the last request, from the start of the run.
        latency: of answered requests, from the intended send time.
        first_token: of streamed answers, from the intended send time to the first part.
        lag: delay of the generator, of all ended requests.
    """

    sent: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    good: int = 0
    last_seconds: float = 0.0
    latency: LatencyHistogram = field(default_factory=LatencyHistogram)
    first_token: LatencyHistogram = field(default_factory=LatencyHistogram)
    lag: LatencyHistogram = field(default_factory=LatencyHistogram)

    @classmethod
    def sum(cls, tallies: Iterable[Self]) -> Self:
        """Adds several tallies."""
        total = cls()
        for each in tallies:
            total.add(each)
        return total

    @property
    def ok(self) -> int:
        """Answered requests."""
        return self.outcomes[OK]

    @property
    def ended(self) -> int:
        """Answered, canceled and failed requests."""
        return self.outcomes.total()

    @property
    def gone(self) -> int:
        """Requests that their clients canceled on purpose."""
        return self.outcomes[GONE]

    @property
    def failed(self) -> int:
        """Requests that ended without an answer and were not canceled on purpose."""
        return self.ended - self.ok - self.gone

    @property
    def failed_share(self) -> float:
        """Share of failed requests, without canceled ones; 0 if there are none."""
        return self.failed / max(1, self.ok + self.failed)

    def record(self, sample: Sample, objective: Objective | None = None) -> None:
        """Counts an ended request. `sent` was counted before."""
        self.outcomes[sample.outcome] += 1
        self.last_seconds = max(self.last_seconds, sample.ended_seconds)
        self.lag.record(sample.lag_seconds)
        if sample.outcome != OK:
            return
        self.texts += len(sample.request.texts)
        self.good += sample.within(objective)
        self.latency.record(sample.latency_seconds)
        if sample.first_token_seconds is not None:
            self.first_token.record(sample.first_token_seconds)

    def add(self, other: Self) -> None:
        """Adds another tally."""
        self.sent += other.sent
        self.outcomes += other.outcomes
        self.texts += other.texts
        self.good += other.good
        self.last_seconds = max(self.last_seconds, other.last_seconds)
        self.latency.add(other.latency)
        self.first_token.add(other.first_token)
        self.lag.add(other.lag)

    def meets(self, objective: Objective) -> bool:
        """Returns whether ended requests meet an objective. An empty tally does not."""

        def within(durations: LatencyHistogram, most_seconds: float | None) -> bool:
            found = durations.percentile(objective.percentile)
            return most_seconds is None or (found is not None and found <= most_seconds)

        return (
            self.failed_share <= objective.failed_share
            and within(self.latency, objective.latency_seconds)
            and within(self.first_token, objective.first_token_seconds)
        )


class Cell(NamedTuple):
    """Key of a tally: the slice of the intended send time, and the kind."""

    slice_number: int
    kind: str


Tallies = dict[Cell, Tally]


class Record:
    """The plan of a run, and the tallies of its requests so far; `users` is None in an open loop."""

    def __init__(self, plan: Plan, users: int | None = None) -> None:
        self.plan = plan
        self.users = users
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        # Two indexes instead of one by slice and kind, which would hold a histogram for every pair.
        self._by_slice: defaultdict[int, Tally] = defaultdict(Tally)
        # By kind, phase and window.
        self._by_kind: defaultdict[tuple[str, str, int], Tally] = defaultdict(Tally)

    def add(self, tallies: Tallies) -> None:
        """Adds the tallies of a process."""
        for cell, tally in tallies.items():
            self.sent += tally.sent
            self.outcomes += tally.outcomes
            self._by_slice[cell.slice_number].add(tally)
            each = self.plan.slices[cell.slice_number]
            self._by_kind[cell.kind, each.phase, each.window].add(tally)

    @property
    def phases(self) -> list[str]:
        """The measured phases, in order."""
        return [name for name in dict.fromkeys(each.phase for each in self.plan.slices) if name != WARM_UP]

    @property
    def kinds(self) -> list[str]:
        """Kinds of the requests that were sent."""
        return list(dict.fromkeys(kind for kind, _, _ in self._by_kind))

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return self.sent - self.outcomes.total()

    @property
    def failed(self) -> dict[str, int]:
        """Requests without an answer, by outcome, sorted."""
        return {outcome: count for outcome, count in sorted(self.outcomes.items()) if outcome != OK}

    def slices_of(self, phase: str, windows: Sequence[int] | None = None) -> list[int]:
        """Returns the slice numbers of a phase, or of some of its windows."""
        return [
            number
            for number, each in enumerate(self.plan.slices)
            if each.phase == phase and (windows is None or each.window in windows)
        ]

    def tally(self, slices: Iterable[int]) -> Tally:
        """Returns the tally of some slices."""
        return Tally.sum(self._by_slice[number] for number in slices if number in self._by_slice)

    def tally_of_kind(self, kind: str, phase: str, windows: Sequence[int] | None = None) -> Tally:
        """Returns the tally of a kind in a phase, or in some of its windows."""
        return Tally.sum(
            tally
            for (of_kind, of_phase, window), tally in self._by_kind.items()
            if (of_kind, of_phase) == (kind, phase) and (windows is None or window in windows)
        )

    def planned(self) -> Counter[int]:
        """Counts the planned requests of each slice."""
        return Counter(self.plan.slice_numbers())


def span(slices: Sequence[Slice]) -> tuple[float, float]:
    """Returns the start of the first slice and the end of the last."""
    return slices[0].begin_seconds, slices[-1].end_seconds
