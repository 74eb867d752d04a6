"""All metrics as text, written so that nobody waits for it: in pieces, with pauses in which others have Python's lock.

Written in one go it takes a core ten milliseconds, and a thread that computes in Python gives the lock away every five
of them only. Called by `serve.api.http_api`, in a thread of its own.
"""

import time
from collections.abc import Callable, Iterator

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# Longer than other threads need to wake up; short beside the seconds between two readings.
PAUSE_SECONDS = 0.001


class _One(Collector):
    """One family by itself."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Yields it."""
        yield self._family


def write_metrics(metrics: Collector, pause: Callable[[float], object] = time.sleep) -> bytes:
    """Returns what `prometheus_client.generate_latest` would, in the text format of Prometheus.

    Args:
        metrics: are read at once; only writing them down takes long.
        pause: waits for so many seconds, after each family.
    """
    pieces = []
    for family in list(metrics.collect()):
        pieces.append(generate_latest(_One(family)))
        pause(PAUSE_SECONDS)
    return b"".join(pieces)
