"""Values that are counted together.

An update of an instrument takes a lock and ten calls in Python. Here each value is one append; many are counted at
once, at the latest when the metrics are read.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Generic, TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

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

    def add(self, *values: Value) -> None:
        """Takes values."""
        self._values.extend(values)
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


class BatchedHistogram(Histogram):
    """A histogram whose samples are complete whenever they are read. Thread-safe."""

    def _metric_init(self) -> None:
        super()._metric_init()
        self._pending = Pending(self.observe_all)

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Observes a value; exemplars are not supported."""
        if exemplar is not None:
            raise ValueError("exemplar: expected None")
        self._pending.add(amount)

    def observe_all(self, amounts: Sequence[float]) -> None:
        """Observes many values."""
        buckets = np.searchsorted(self._upper_bounds, np.array(amounts, np.float64))
        self.add(np.bincount(buckets, minlength=len(self._upper_bounds)).tolist(), sum(amounts))

    def add(self, counts: Collection[int], total: float) -> None:
        """Adds observations, counted per bucket: up to each upper bound but not the one before, and above all."""
        self._sum.inc(total)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)

    def _child_samples(self) -> tuple[Sample, ...]:
        self._pending.flush()
        return tuple(super()._child_samples())
