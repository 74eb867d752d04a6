"""The text format of the metrics.

It is written in pieces with pauses, because one piece would hold the interpreter lock for ten milliseconds.
"""

import time
from collections.abc import Callable, Iterator

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# Longer than the wake-up of another thread; short compared with the scrape interval.
PAUSE_SECONDS = 0.001


class _SingleFamily(Collector):
    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Yields the family."""
        yield self._family


def write_metrics(metrics: Collector, pause: Callable[[float], object] = time.sleep) -> bytes:
    """Returns the metrics in Prometheus text format, like `prometheus_client.generate_latest`.

    Collects all metrics at once; calls `pause` after writing each family.
    """
    pieces = []
    for family in list(metrics.collect()):
        pieces.append(generate_latest(_SingleFamily(family)))
        pause(PAUSE_SECONDS)
    return b"".join(pieces)
