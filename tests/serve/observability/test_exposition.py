"""The text of the metrics is that of the library."""

from prometheus_client import CollectorRegistry, Counter, generate_latest

from dragoman.serve.observability.exposition import PAUSE_SECONDS, write_metrics
from dragoman.serve.observability.metrics import ServiceMetrics


def test_the_metrics_are_those_of_the_library_and_written_with_pauses() -> None:
    service, pauses = ServiceMetrics(), list[float]()
    service.of_model("a").observe_step("decode", 3, 0.002)
    service.of_model("b")
    assert write_metrics(service.registry, pauses.append) == generate_latest(service.registry)
    assert pauses == [PAUSE_SECONDS] * len(list(service.registry.collect()))


def test_counts_during_the_writing_of_metrics_are_not_included() -> None:
    """Otherwise a total could differ from the sum of its parts."""
    registry = CollectorRegistry()
    counters = [Counter(name, name, registry=registry) for name in ("first", "second")]

    def count(_: float) -> None:
        for counter in counters:
            counter.inc()

    text = write_metrics(registry, count).decode()
    assert "first_total 0.0" in text
    assert "second_total 0.0" in text
