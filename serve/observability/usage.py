"""Counts and times of one request, for logs, traces and metrics."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, Self


def to_microseconds(seconds: float) -> float:
    """Rounds a time to microseconds, in a third of the time that `round` takes."""
    return int(seconds * 1e6 + 0.5) / 1e6


@dataclass(slots=True)
class Timings:
    """The phases of one request in seconds; `queue` and `inference` are the maximum over its texts."""

    tokenize_seconds: float
    queue_seconds: float
    inference_seconds: float
    total_seconds: float

    @property
    def by_name(self) -> dict[str, float]:
        """The times by attribute name."""
        return dict(zip(_TIMES, _times(self)))  # noqa: B905 - the lengths are equal, and the check costs time

    @property
    def rounded(self) -> Iterable[tuple[str, float]]:
        """Names and times to the microsecond."""
        # The formula of `to_microseconds`, without its calls.
        rounded = [int(seconds * 1e6 + 0.5) / 1e6 for seconds in _times(self)]
        return zip(_TIMES, rounded)  # noqa: B905 - as above

    @property
    def milliseconds(self) -> tuple[float, ...]:
        """The times in milliseconds, in the order of the attributes."""
        return tuple([1000 * seconds for seconds in _times(self)])

    @classmethod
    def total(cls, parts: Sequence[Self]) -> Self:
        """Returns the times of consecutive parts of a request."""
        return cls(*(sum((getattr(part, name) for part in parts), 0.0) for name in cls.__slots__))

    @classmethod
    def longest(cls, parts: Sequence[Self]) -> Self:
        """Returns the times of parts of a request that run together."""
        return cls(*(max(getattr(part, name) for part in parts) for name in cls.__slots__))


_TIMES = Timings.__slots__
_times = attrgetter(*_TIMES)


class RequestUsage(NamedTuple):
    """Counts and times of one request; of several hypotheses of a text, the best one counts."""

    texts: int
    source_tokens: int
    target_tokens: int
    timings: Timings

    @classmethod
    def total(cls, parts: Sequence[Self]) -> Self:
        """Returns the usage of a request with consecutive parts."""
        return cls(
            texts=sum(part.texts for part in parts),
            source_tokens=sum(part.source_tokens for part in parts),
            target_tokens=sum(part.target_tokens for part in parts),
            timings=Timings.total([part.timings for part in parts]),
        )
