"""Counts and durations of some requests; tallies of several processes, kinds and slices of time add up to one.

Latencies are those of answered requests; every failed one is counted under its status and reason, so that what was
sent is what was answered, what failed and what is still under way. Knows no clock.

Durations in a histogram of High Dynamic Range: percentiles to three digits, in memory that does not grow.

Histograms of several processes and intervals are added up without loss (Gil Tene, HdrHistogram). Knows nothing of what
took the time.

What became of one request of a load, and when. Made by the generator, counted by `loadtest.tally`.

All that is known of a run, by slice of time and by kind of request: it grows while the run goes on.

Filled by the processes that generate load, read by whoever watches, decides or reports. Knows no clock.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from hdrh.histogram import HdrHistogram

from loadtest.clients import GONE, OK
from loadtest.plan import WARM_UP, Plan, Slice
from loadtest.scenario import LoadRequest

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


class LatencyHistogram:
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


@dataclass(frozen=True, slots=True)
class Sample:
    """An ended request; times are seconds from the start of the run.

    Attributes:
        request: what was sent.
        intended_seconds: when it should have been sent; in a closed loop, when it was.
        sent_seconds: when it was sent.
        ended_seconds: when its answer, or the failure, was there.
        outcome: OK, GONE, or the status and reason of the failure.
        first_seconds: when the first part of a streamed answer was there; None: nothing was streamed.
    """

    request: LoadRequest
    intended_seconds: float
    sent_seconds: float
    ended_seconds: float
    outcome: str
    first_seconds: float | None = None

    @property
    def ok(self) -> bool:
        """Whether it was answered as it should."""
        return self.outcome == OK

    @property
    def latency_seconds(self) -> float:
        """What a user who arrived on time has waited."""
        return self.ended_seconds - self.intended_seconds

    @property
    def first_token_seconds(self) -> float | None:
        """What that user has waited for the first part; None: nothing was streamed."""
        return None if self.first_seconds is None else self.first_seconds - self.intended_seconds

    @property
    def lag_seconds(self) -> float:
        """How late the generator was; not the server's doing."""
        return self.sent_seconds - self.intended_seconds


class Bound(NamedTuple):
    """Within which time an answer is a good one, in seconds; None: any time will do."""

    latency_seconds: float | None = None
    first_token_seconds: float | None = None

    def holds(self, sample: Sample) -> bool:
        """Tells whether a request was answered, and soon enough; what is not streamed has no first token."""
        first_token_seconds = sample.first_token_seconds
        return (
            sample.ok
            and (self.latency_seconds is None or sample.latency_seconds <= self.latency_seconds)
            and (
                self.first_token_seconds is None
                or first_token_seconds is None
                or first_token_seconds <= self.first_token_seconds
            )
        )


@dataclass(slots=True)
class Tally:
    """What became of some requests.

    Attributes:
        sent: how many were sent.
        outcomes: how many of them ended, by outcome.
        texts: of the answered ones.
        good: how many were answered soon enough.
        last_seconds: when the last of them ended, from the start of the run.
        latency: of the answered ones, from the intended send time on.
        first_token: of those that were answered as a stream, from the intended send time to the first part.
        lag: of all that ended: how late they were sent.
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
        """Returns all of them as one."""
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
        """Requests that were answered, left alone by a client that was meant to go away, or failed."""
        return self.outcomes.total()

    @property
    def gone(self) -> int:
        """Requests that their clients left alone, as they were meant to."""
        return self.outcomes[GONE]

    @property
    def failed(self) -> int:
        """All other requests that ended."""
        return self.ended - self.ok - self.gone

    @property
    def failed_share(self) -> float:
        """The share of those that failed in all whose client waited for the end; 0 if there was none."""
        return self.failed / max(1, self.ok + self.failed)

    def record(self, sample: Sample, bound: Bound) -> None:
        """Counts a request that ended; that it was sent was counted before."""
        self.outcomes[sample.outcome] += 1
        self.last_seconds = max(self.last_seconds, sample.ended_seconds)
        self.lag.record(sample.lag_seconds)
        if not sample.ok:
            return
        self.texts += len(sample.request.texts)
        self.good += bound.holds(sample)
        self.latency.record(sample.latency_seconds)
        if sample.first_token_seconds is not None:
            self.first_token.record(sample.first_token_seconds)

    def add(self, other: Self) -> None:
        """Adds another tally."""
        self._add_counts(other.sent, other.outcomes, other.texts, other.good, other.last_seconds)
        self.latency.add(other.latency)
        self.first_token.add(other.first_token)
        self.lag.add(other.lag)

    def pack(self) -> "PackedTally":
        """Returns it in a form for another process."""
        return PackedTally(
            self.sent,
            self.outcomes,
            self.texts,
            self.good,
            self.last_seconds,
            self.latency.pack(),
            self.first_token.pack(),
            self.lag.pack(),
        )

    def add_packed(self, packed: "PackedTally") -> None:
        """Adds a tally of another process."""
        self._add_counts(packed.sent, packed.outcomes, packed.texts, packed.good, packed.last_seconds)
        self.latency.add_packed(packed.latency)
        self.first_token.add_packed(packed.first_token)
        self.lag.add_packed(packed.lag)

    def _add_counts(self, sent: int, outcomes: Counter[str], texts: int, good: int, last_seconds: float) -> None:
        self.sent += sent
        self.outcomes += outcomes
        self.texts += texts
        self.good += good
        self.last_seconds = max(self.last_seconds, last_seconds)


class PackedTally(NamedTuple):
    """A tally whose durations are bytes."""

    sent: int
    outcomes: Counter[str]
    texts: int
    good: int
    last_seconds: float
    latency: bytes
    first_token: bytes
    lag: bytes


class Cell(NamedTuple):
    """Which requests a tally counts: those intended in a slice of the plan, of a kind."""

    slice_number: int
    kind: str


PackedTallies = dict[Cell, PackedTally]


class _Part(NamedTuple):
    """A kind of requests in a window of a phase."""

    phase: str
    window: int
    kind: str


class Record:
    """What was planned and what happened.

    Attributes:
        plan: what was to be sent.
        users: in a closed loop, how many there are; None: open loop.
        sent: requests that were sent.
        outcomes: of those that have ended.
    """

    def __init__(self, plan: Plan, users: int | None = None) -> None:
        self.plan = plan
        self.users = users
        self.sent = 0
        self.outcomes: Counter[str] = Counter()
        # Not by both: an hour of many kinds would hold a histogram for each minute of each of them.
        self._by_slice: defaultdict[int, Tally] = defaultdict(Tally)
        self._by_kind: defaultdict[_Part, Tally] = defaultdict(Tally)

    def add(self, tallies: PackedTallies) -> None:
        """Adds what a process tells."""
        for cell, packed in tallies.items():
            self.sent += packed.sent
            self.outcomes += packed.outcomes
            self._by_slice[cell.slice_number].add_packed(packed)
            each = self.plan.slices[cell.slice_number]
            self._by_kind[_Part(each.phase, each.window, cell.kind)].add_packed(packed)

    @property
    def phases(self) -> list[str]:
        """The measured phases in their order."""
        return [name for name in dict.fromkeys(each.phase for each in self.plan.slices) if name != WARM_UP]

    @property
    def kinds(self) -> list[str]:
        """Kinds of requests that were sent."""
        return list(dict.fromkeys(part.kind for part in self._by_kind))

    @property
    def in_flight(self) -> int:
        """Requests that were sent and have not ended."""
        return self.sent - self.outcomes.total()

    @property
    def failed(self) -> dict[str, int]:
        """Requests that were not answered, by outcome, in the order of these."""
        return {outcome: count for outcome, count in sorted(self.outcomes.items()) if outcome != OK}

    def slices_of(self, phase: str, windows: Sequence[int] | None = None) -> list[int]:
        """Returns the numbers of the slices of a phase, or of some of its windows."""
        return [
            number
            for number, each in enumerate(self.plan.slices)
            if each.phase == phase and (windows is None or each.window in windows)
        ]

    def tally(self, slices: Iterable[int]) -> Tally:
        """Returns what is known of the requests of some slices."""
        return Tally.sum(self._by_slice[number] for number in slices if number in self._by_slice)

    def tally_of_kind(self, kind: str, phase: str, windows: Sequence[int] | None = None) -> Tally:
        """Returns what is known of the requests of a kind in a phase, or in some of its windows."""
        return Tally.sum(
            tally
            for part, tally in self._by_kind.items()
            if part.kind == kind and part.phase == phase and (windows is None or part.window in windows)
        )

    def planned(self) -> Counter[int]:
        """Returns how many requests each slice was to have."""
        return Counter(self.plan.slice_numbers())


def span(slices: Sequence[Slice]) -> tuple[float, float]:
    """Returns when the first of some slices begins, and when the last ends."""
    return slices[0].begin_seconds, slices[-1].end_seconds
