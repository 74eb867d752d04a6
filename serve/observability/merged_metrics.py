"""The metrics of several processes of a service as those of one.

Counters and histograms are sums that include processes that have ended, so that they never fall. Gauges are sums, too,
except those of `merged_metrics.yaml`. Metrics of the process itself get the label `process`; a new process takes over
the number of the one that it replaces, so that the series are bounded.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dragoman.tables import read_table

# Name, type, description, and samples of name, labels and value: all of JSON.
Family = tuple[str, str, str, list[tuple[str, dict[str, str], float]]]
Series = tuple[str, tuple[tuple[str, str], ...]]

CUMULATIVE = ("counter", "histogram")
OF_A_PROCESS = "process_"
PROCESS_LABEL = "process"
SUPERVISOR = "supervisor"
_FAMILIES: dict[str, list[str]] = read_table(__file__, "merged_metrics.yaml")


def snapshot(metrics: Collector) -> list[Family]:
    """Returns the current values of all metrics."""
    return [
        (item.name, item.type, item.documentation, [(name, labels, value) for name, labels, value, *_ in item.samples])
        for item in metrics.collect()
    ]


class MergedMetrics(Collector):
    """Collects the metrics of all processes. Not thread-safe."""

    def __init__(self) -> None:
        """Starts without processes."""
        self._latest: dict[int, tuple[str, list[Family]]] = {}
        self._ended: dict[Series, float] = {}

    def update(self, process_id: int, label: str, families: list[Family]) -> None:
        """Replaces the values of a process; `label` distinguishes it from others that run."""
        self._latest[process_id] = label, families

    def end(self, process_id: int) -> None:
        """Keeps the counters of a process that has ended, and drops its other values."""
        if process_id in self._latest:
            label, families = self._latest.pop(process_id)
            for name, kind, _, samples in families:
                if kind in CUMULATIVE:
                    for series, value in _series(name, label, samples):
                        self._ended[series] = self._ended.get(series, 0.0) + value

    def forget(self, model: str) -> None:
        """Drops the counters that ended processes had for a model that is no longer served."""
        self._ended = {series: value for series, value in self._ended.items() if ("model", model) not in series[1]}

    def collect(self) -> Iterator[Metric]:
        """Yields every family of any process once."""
        merged: dict[str, tuple[Metric, dict[Series, float]]] = {}
        for label, families in self._latest.values():
            for name, kind, description, samples in families:
                _, values = merged.setdefault(name, (Metric(name, description, kind), {}))
                for series, value in _series(name, label, samples):
                    values[series] = _merge(name, kind, values.get(series), value)
        for metric, values in merged.values():
            for series, value in values.items():
                ended = self._ended.get(series, 0.0) if metric.type in CUMULATIVE else 0.0
                metric.add_sample(series[0], dict(series[1]), value + ended)
            yield metric


def _series(
    family: str, label: str, samples: list[tuple[str, Mapping[str, str], float]] | list[Any]
) -> Iterator[tuple[Series, float]]:
    own = ((PROCESS_LABEL, label),) if family.startswith(OF_A_PROCESS) else ()
    for name, labels, value in samples:
        yield (name, (*labels.items(), *own)), value


def _merge(family: str, kind: str, before: float | None, value: float) -> float:
    if before is None:
        return value
    if family in _FAMILIES["min"]:
        return min(before, value)
    if family in _FAMILIES["max"] or kind == "info":
        return max(before, value)
    return before + value
