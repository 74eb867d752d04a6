"""Counts and durations of some requests; tallies of several processes, kinds and slices of time add up to one.

Latencies are those of answered requests; every failed one is counted under its status and reason, so that what was
sent is what was answered, what failed and what is still under way. Knows no clock.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from loadtest.client import GONE, OK
from loadtest.durations import Durations
from loadtest.sample import Sample


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
    latency: Durations = field(default_factory=Durations)
    first_token: Durations = field(default_factory=Durations)
    lag: Durations = field(default_factory=Durations)

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
