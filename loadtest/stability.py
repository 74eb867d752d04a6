"""When a measurement may end: once the last windows say the same.

The rule is that of NVIDIA's perf_analyzer: three windows in a row whose throughput and whose percentile of the latency
lie within a tenth of each other. Knows no clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """What one window found.

    Attributes:
        requests_per_second: that were answered.
        latency_seconds: at the percentile that is watched; None: nothing was answered.
    """

    requests_per_second: float
    latency_seconds: float | None


@dataclass(frozen=True, slots=True)
class StabilityRule:
    """Which windows say the same.

    Attributes:
        alike: so many in a row have to.
        within: how far they may lie from their mean, as a share of it.
        most: windows that are tried.
        percent: percentile of the latency that is watched.
    """

    alike: int = 3
    within: float = 0.1
    most: int = 10
    percent: float = 99.0

    def is_stable(self, windows: Sequence[Window]) -> bool:
        """Tells whether the last windows say the same."""
        last = windows[-self.alike :]
        latencies = [window.latency_seconds for window in last if window.latency_seconds is not None]
        return (
            len(last) == len(latencies) == self.alike
            and self._agree([window.requests_per_second for window in last])
            and self._agree(latencies)
        )

    def _agree(self, values: Sequence[float]) -> bool:
        mean = sum(values) / len(values)
        return max(abs(value - mean) for value in values) <= self.within * mean
