"""Values that are counted together.

An update of an instrument takes a lock and ten calls in Python. Here each value is one append; many are counted at
once, at the latest when the metrics are read.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

# Values that are counted at once, in about a tenth of a millisecond.
BATCH = 256

Value = TypeVar("Value")


class Pending(Generic[Value]):
    """Values that are not counted yet. Thread-safe."""

    def __init__(self, count: Callable[[Sequence[Value]], object]) -> None:
        """Starts empty; `count` takes the values in their order, each once, and never runs twice at once."""
        self._count = count
        self._values = deque[Value]()
        self._counting = threading.Lock()

    def add(self, value: Value) -> None:
        """Takes a value."""
        self._values.append(value)
        if len(self._values) >= BATCH:
            self.flush()

    def flush(self) -> None:
        """Counts all values."""
        with self._counting:
            if self._values:
                take = self._values.popleft
                self._count([take() for _ in range(len(self._values))])


class Batch(Pending[Value], Collector):
    """Values of a registry. Must be made before the instruments that it updates, since they are read in this order."""

    def __init__(self, registry: CollectorRegistry, count: Callable[[Sequence[Value]], object]) -> None:
        """Starts empty; `count` as of `Pending`."""
        super().__init__(count)
        registry.register(self)

    def collect(self) -> Sequence[Metric]:
        """Counts all values; has no metric of its own."""
        self.flush()
        return ()
