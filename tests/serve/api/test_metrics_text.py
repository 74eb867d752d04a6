"""The text of /metrics equals that of Prometheus' library, written family by family."""

from prometheus_client import CollectorRegistry, Counter, generate_latest

from serve.api.server import PAUSE_SECONDS, write_metrics
from serve.observability.metrics import ServiceMetrics


def test_the_text_is_that_of_the_library() -> None:
    service = ServiceMetrics()
    service.of_model("a").observe_step("decode", 3, 0.002)
    service.of_model("b")
    assert write_metrics(service.registry) == generate_latest(service.registry)


def test_the_writer_pauses_after_each_family() -> None:
    registry = CollectorRegistry()
    for name in ("one", "two", "three"):
        Counter(name, name, registry=registry)
    pauses: list[float] = []
    write_metrics(registry, pauses.append)
    assert pauses == [PAUSE_SECONDS] * 3


def test_later_counts_are_not_included() -> None:
    """Otherwise a total could differ from the sum of its parts."""
    registry = CollectorRegistry()
    first, second = (Counter(name, name, registry=registry) for name in ("first", "second"))

    def count(_: float) -> None:
        first.inc()
        second.inc()

    text = write_metrics(registry, count).decode()
    assert "first_total 0.0" in text
    assert "second_total 0.0" in text
