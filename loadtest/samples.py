"""The requests of a run as arrays: when each was sent and answered, by kind and outcome.

Samples of several processes are concatenated, so percentiles are exact. Latency starts at the intended send time.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dragoman.loadtest.clients import GONE, OK
from dragoman.loadtest.scenario import LoadRequest, Objective

# The points get denser toward the slow requests at the end.
CURVE_PERCENTILES = (0.0, *(100 - 100 / 2 ** (step / 4) for step in range(1, 57)), 100.0)
# A request that has ended. Times are in seconds from the start of the run; the intended time is the actual one in a
# closed loop. The time of the first part is NaN if the answer was not streamed.
TIMES = ("intended", "sent", "ended", "first")
ROW = np.dtype([("kind", "O"), ("outcome", "O"), *((name, "f8") for name in TIMES), ("texts", "i8")])
# Elements are of the type ROW, shape (requests,).
Rows = NDArray[np.void]
# Seconds, ascending, shape (requests,).
Durations = NDArray[np.float64]


def percentile(durations: Durations, percent: float) -> float | None:
    """Returns the smallest duration that at least `percent` % do not exceed; None without durations."""
    if not len(durations):
        return None
    # Rounded, because 99.9 % of 1,000 is a little more than 999 in floating point.
    rank = max(1, math.ceil(round(percent / 100 * len(durations), 6)))
    return float(durations[rank - 1])


def failed_share(failed: int, answered: int) -> float:
    """Returns the share of failed requests, without canceled ones; 0 if there are none."""
    return failed / max(1, failed + answered)


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of durations, in seconds."""

    p50: float
    p90: float
    p99: float
    p99_9: float
    max: float

    @classmethod
    def of(cls, durations: Durations) -> Self | None:
        """Returns the percentiles; None without durations."""
        found = [percentile(durations, percent) for percent in (50, 90, 99, 99.9, 100)]
        return cls(*(seconds for seconds in found if seconds is not None)) if len(durations) else None


class PercentilePoint(NamedTuple):
    """A point of the distribution of durations."""

    percent: float
    seconds: float


def curve(durations: Durations) -> Iterator[PercentilePoint]:
    """Yields the distribution as far as the number of durations supports it, then the longest duration."""
    for percent in CURVE_PERCENTILES:
        seconds = percentile(durations, percent)
        if seconds is not None and (percent == 100.0 or len(durations) * (100 - percent) >= 100):  # noqa: PLR2004
            yield PercentilePoint(percent, seconds)


@dataclass(frozen=True, slots=True)
class Samples:
    """Requests, of a whole run or of a part of it: intended times of all that were sent, and those that have ended."""

    begun: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    ended: Rows = field(default_factory=lambda: np.empty(0, ROW))

    @classmethod
    def join(cls, parts: Iterable[Self]) -> Self:
        """Returns the requests of all parts."""
        parts = [cls(), *parts]
        return cls(np.concatenate([part.begun for part in parts]), np.concatenate([part.ended for part in parts]))

    def between(self, begin_seconds: float, end_seconds: float = math.inf) -> Self:
        """Returns the requests with an intended time from `begin_seconds` on and before `end_seconds`."""
        begun, ended = ((begin_seconds <= item) & (item < end_seconds) for item in (self.begun, self.ended["intended"]))
        return type(self)(self.begun[begun], self.ended[ended])

    def kinds(self) -> dict[str, Self]:
        """Returns the ended requests of each kind."""
        kinds = self.ended["kind"]
        parts = {kind: self.ended[kinds == kind] for kind in dict.fromkeys(kinds.tolist())}
        return {kind: type(self)(rows["intended"], rows) for kind, rows in parts.items()}

    @property
    def outcomes(self) -> Counter[str]:
        """Ended requests by outcome."""
        return Counter(self.ended["outcome"].tolist())

    @property
    def errors(self) -> dict[str, int]:
        """Requests that ended without an answer and were not canceled on purpose, by outcome, sorted."""
        return {outcome: count for outcome, count in sorted(self.outcomes.items()) if outcome not in (OK, GONE)}

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self.begun) - len(self.ended)

    @property
    def answered(self) -> Rows:
        """The answered requests."""
        rows: Rows = self.ended[self.ended["outcome"] == OK]
        return rows

    @property
    def latency(self) -> Durations:
        """Latencies of answered requests."""
        return np.sort(_after(self.answered, "ended"))

    @property
    def first_token(self) -> Durations:
        """Times from the intended send time to the first part of streamed answers."""
        durations = _after(self.answered, "first")
        return np.sort(durations[~np.isnan(durations)])

    @property
    def lag(self) -> Durations:
        """Delays of the generator, of all ended requests."""
        # A timer may fire a nanosecond early.
        return np.sort(np.maximum(0.0, _after(self.ended, "sent")))

    @property
    def last_seconds(self) -> float:
        """End of the last ended request, from the start of the run."""
        return float(self.ended["ended"].max(initial=0.0))

    def good(self, objective: Objective) -> int:
        """Counts the answers within the bounds of an objective. The first-token bound applies to streams only."""
        first_seconds, bound_seconds = _after(self.answered, "first"), objective.first_token_seconds or math.inf
        in_time = _after(self.answered, "ended") <= objective.latency_seconds
        return int(np.sum(in_time & (np.isnan(first_seconds) | (first_seconds <= bound_seconds))))

    def meets(self, objective: Objective) -> bool:
        """Returns whether the ended requests meet an objective. No request does not."""

        def within(durations: Durations, bound_seconds: float | None) -> bool:
            found = percentile(durations, objective.percentile)
            return bound_seconds is None or (found is not None and found <= bound_seconds)

        return (
            failed_share(sum(self.errors.values()), self.outcomes[OK]) <= objective.failed_share
            and within(self.latency, objective.latency_seconds)
            and within(self.first_token, objective.first_token_seconds)
        )


def _after(rows: Rows, name: str) -> NDArray[np.float64]:
    """Returns the times from the intended send times."""
    return np.asarray(rows[name] - rows["intended"])


class Book:
    """Records requests, and returns the records in increments. Times are seconds from the start of the run."""

    def __init__(self) -> None:
        self._begun: list[float] = []
        self._ended: list[tuple[Any, ...]] = []

    def begin(self, intended_seconds: float) -> None:
        """Records that a request is being sent."""
        self._begun.append(intended_seconds)

    def end(self, request: LoadRequest, outcome: str, times: tuple[float, float, float, float]) -> None:
        """Records that a request has ended; `times` are in the order of TIMES."""
        self._ended.append((request.kind.name, outcome, *times, len(request.texts)))

    def take(self) -> Samples:
        """Returns what was recorded since the last call."""
        samples = Samples(np.array(self._begun, np.float64), np.array(self._ended, ROW))
        self._begun, self._ended = [], []
        return samples
