"""A Prometheus histogram that adds observations in batches."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection
from functools import partial

from prometheus_client import Histogram
from prometheus_client.samples import Sample

from dragoman.serve.observability.batch import Pending


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

    def observe_all(self, amounts: Collection[float]) -> None:
        """Observes many values."""
        counts = Counter(map(partial(bisect_left, self._upper_bounds), amounts))
        self.add([counts[index] for index in range(len(self._upper_bounds))], sum(amounts))

    def add(self, counts: Collection[int], total: float) -> None:
        """Adds observations that are counted already.

        Args:
            counts: observations up to each upper bound but not up to the one before, and above all.
        """
        self._sum.inc(total)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)

    def _child_samples(self) -> tuple[Sample, ...]:
        self._pending.flush()
        return tuple(super()._child_samples())
