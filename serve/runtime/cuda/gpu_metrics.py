"""The memory of the GPUs as metrics: asked of the driver whenever somebody reads them.

Registered by `serve.service` where a model is computed on GPUs.
"""

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from serve.runtime.cuda.driver import GpuError, gpus


class GpuCollector(Collector):
    """Gauges with a label for the number of the GPU; none while the driver does not answer."""

    def describe(self) -> list[Metric]:
        """Names nothing, so that registering asks nobody."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields the memory of each GPU and what of it is taken, by whomever."""
        total = GaugeMetricFamily("dragoman_gpu_memory_total_bytes", "Memory of each GPU.", labels=["gpu"])
        used = GaugeMetricFamily(
            "dragoman_gpu_memory_used_bytes", "Memory of each GPU that is taken, by any process.", labels=["gpu"]
        )
        try:
            found = gpus()
        except GpuError:
            return
        for number, gpu in enumerate(found):
            total.add_metric([str(number)], gpu.total_bytes)
            used.add_metric([str(number)], gpu.total_bytes - gpu.free_bytes)
        yield total
        yield used
