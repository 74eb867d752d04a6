"""CPU time of a server's process and of what is in it; how a watched server shows it, and how it is read.

Shown as Prometheus counters, on a port of its own. Knows nothing of who spends the time; used by
`benchmarks.watched_server` and, on the other side, by `benchmarks.service_load`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self
from urllib.request import urlopen

from prometheus_client.core import CounterMetricFamily
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

_NAME = "watched_cpu_seconds"
_LABEL = "part"
READ_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU seconds, in user and system mode.

    Attributes:
        process: of the whole process.
        engines: of the threads of its engines, until each one's last run.
        runs: of the runs of ONNX Runtime that have ended, which are a part of that.
    """

    process: float
    engines: float
    runs: float

    def since(self, before: Self) -> Self:
        """Returns what was spent since an earlier moment."""
        return type(self)(self.process - before.process, self.engines - before.engines, self.runs - before.runs)

    @property
    def runs_share(self) -> float:
        """What ONNX Runtime had of all."""
        return self.runs / self.process

    @property
    def engines_share(self) -> float:
        """What the threads of the engines had of all beside it: scheduler, search, Python around the runs."""
        return (self.engines - self.runs) / self.process

    @property
    def others_share(self) -> float:
        """What all other threads had: interfaces, tokenizer, metrics."""
        return (self.process - self.engines) / self.process


class CpuTimesCollector(Collector):
    """Shows the CPU times of a moment."""

    def __init__(self, read: Callable[[], CpuTimes]) -> None:
        """Keeps where they come from."""
        self._read = read

    def collect(self) -> Iterator[CounterMetricFamily]:
        """Yields the one metric that there is."""
        family = CounterMetricFamily(_NAME, "CPU time of the process and of parts of it.", labels=[_LABEL])
        times = self._read()
        for part in CpuTimes.__slots__:
            family.add_metric([part], getattr(times, part))
        yield family


def read_cpu_times(url: str) -> CpuTimes:
    """Returns what a watched server shows now.

    Raises:
        OSError: if it cannot be asked.
    """
    with urlopen(url, timeout=READ_SECONDS) as response:  # noqa: S310 - our own server's address
        text = response.read().decode()
    samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return CpuTimes(**{each.labels[_LABEL]: each.value for each in samples if each.name == f"{_NAME}_total"})
