"""Counts and times of one request, for logs, traces and metrics."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timings:
    """The phases of one request in seconds; `queue` and `inference` are the maximum over its texts."""

    tokenize_seconds: float
    queue_seconds: float
    inference_seconds: float
    total_seconds: float

    @property
    def by_name(self) -> dict[str, float]:
        """The times by attribute name."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class RequestUsage:
    """Counts and times of one request; of several hypotheses of a text, the best one counts."""

    texts: int
    source_tokens: int
    target_tokens: int
    timings: Timings
