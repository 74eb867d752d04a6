"""Every series exists from the start, every method changes only its own, and each model has series of its own."""

import asyncio
import re
from contextlib import suppress

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from dragoman.serve.errors import ERRORS, InvalidRequestError, QueueFullError
from dragoman.serve.observability.logs import RecordedRequest
from dragoman.serve.observability.metrics import ServiceMetrics
from dragoman.serve.observability.request_metrics import NO_MODEL
from dragoman.serve.observability.usage import RequestUsage, Timings

TIMINGS = Timings(tokenize_seconds=0.1, queue_seconds=0.2, inference_seconds=0.3, total_seconds=0.7)
USAGE = RequestUsage(texts=2, source_tokens=7, target_tokens=9, timings=TIMINGS)


class Bench:
    """Metrics and the values of their series."""

    def __init__(self) -> None:
        self.service = ServiceMetrics()
        self.registry = self.service.registry
        self.metrics = self.service.of_model("tiny")

    def value(self, name: str, *, model: str = "tiny", **labels: str) -> float | None:
        """Returns the value of a series that has the label `model`."""
        return self.registry.get_sample_value(f"dragoman_{name}", {"model": model, **labels})

    def plain(self, name: str, **labels: str) -> float | None:
        """Returns the value of a series without the label `model`."""
        return self.registry.get_sample_value(f"dragoman_{name}", labels)

    def text(self) -> str:
        return generate_latest(self.registry).decode()

    def outcomes(self) -> dict[str, float]:
        """Returns the number of requests by outcome, zeros omitted."""
        family = next(family for family in self.registry.collect() if family.name == "dragoman_requests")
        samples = [sample for sample in family.samples if sample.name == "dragoman_requests_total" and sample.value]
        return {sample.labels["outcome"]: sample.value for sample in samples}


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_every_outcome_of_a_request_and_every_reason_of_a_sequence_starts_at_zero(bench: Bench) -> None:
    for protocol in ("grpc", "rest"):
        for outcome in ("ok", *(error.reason for error in ERRORS)):
            labels = {"protocol": protocol, "method": "translate", "outcome": outcome}
            assert bench.value("requests_total", **labels) == 0
    for reason in ("eos", "length", "cancelled", "deadline_exceeded", "draining", "internal"):
        assert bench.value("sequences_finished_total", reason=reason) == 0


def test_the_series_do_not_depend_on_what_happened(bench: Bench) -> None:
    """A rate over a series that appears late misses its first increase."""

    def names() -> set[str]:
        return {line.rpartition(" ")[0] for line in bench.text().splitlines()}

    bench.service.set_build({"version": "1"})
    bench.metrics.set_info({"opset": "20"})
    before = names()
    bench.service.start_request()
    bench.service.finish_request("tiny", "grpc", "translate", "queue_full", 0.1)
    bench.service.observe_reload(1)
    bench.metrics.responses.add(USAGE)
    bench.metrics.observe_step("encode", 3, 0.1)
    bench.metrics.observe_failure("cancelled", 3)
    bench.metrics.queue.observe(0.1)
    bench.metrics.padding.inc(2)
    assert names() == before


def test_names_follow_the_conventions_of_prometheus(bench: Bench) -> None:
    """Creation times are not exposed."""
    for family in bench.registry.collect():
        assert re.fullmatch(r"dragoman_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        assert family.type in {"counter", "gauge", "histogram", "info"}
        assert not re.search(r"_(ms|us|milliseconds|kb)$", family.name)
        assert not any(sample.name.endswith("_created") for sample in family.samples)


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (InvalidRequestError("text", "wrong"), "invalid"),
        (QueueFullError("full"), "queue_full"),
        (asyncio.CancelledError(), "cancelled"),
        (ZeroDivisionError(), "internal"),
    ],
)
def test_a_request_is_in_flight_to_its_end_and_counted_once(bench: Bench, error: BaseException, outcome: str) -> None:
    with capture_logs(), suppress(BaseException), RecordedRequest(bench.service, "rest", "translate", "id") as record:
        record.model = "tiny"
        assert bench.plain("inflight_requests") == 1
        raise error
    assert bench.outcomes() == {outcome: 1}
    assert bench.plain("inflight_requests") == 0
    assert bench.value("request_duration_seconds_count", protocol="rest", outcome="error") == 1


def test_models_share_families_and_not_series(bench: Bench) -> None:
    for slots, name in enumerate(("a", "b"), start=3):
        bench.service.of_model(name).set_limits(slots=slots, queue_limit=9)
    assert (bench.value("slots", model="a"), bench.value("slots", model="b")) == (3, 4)
    families = [family.name for family in text_string_to_metric_families(bench.text())]
    assert len(set(families)) == len(families)


def test_a_forgotten_model_leaves_no_series(bench: Bench) -> None:
    before = bench.text()
    bench.service.of_model("a").set_info({"precision": "fp32"})
    assert 'model="a"' in bench.text()
    bench.service.forget("a")
    assert bench.text() == before


def test_the_next_version_of_a_model_continues_counting(bench: Bench) -> None:
    bench.metrics.padding.inc(2)
    bench.service.of_model("tiny").padding.inc(3)
    assert bench.value("padding_tokens_total", side="source") == 5


def test_a_model_that_returns_while_it_is_forgotten_is_kept(bench: Bench) -> None:
    back = bench.service.of_model("tiny")
    bench.service.forget("tiny")
    bench.service.keep("tiny", back)
    back.padding.inc(3)
    assert bench.value("padding_tokens_total", side="source") == 3


def test_while_two_versions_run_their_load_adds_up(bench: Bench) -> None:
    bench.metrics.set_load(waiting=1, running=2, running_rows=4)
    bench.service.of_model("tiny").set_load(waiting=0, running=3, running_rows=3)
    assert (bench.value("sequences_running"), bench.value("rows_running")) == (5, 7)
    bench.metrics.set_load(waiting=0, running=0, running_rows=0)
    assert (bench.value("sequences_running"), bench.value("sequences_waiting")) == (3, 0)
    assert bench.value("sequences_running_peak") == 3


def test_a_request_is_counted_by_its_model(bench: Bench) -> None:
    """Requests of removed models count for none."""
    for model in ("tiny", NO_MODEL, "gone"):
        bench.service.start_request()
        bench.service.finish_request(model, "grpc", "translate", "ok", 0.1)
    labels = {"protocol": "grpc", "method": "translate", "outcome": "ok"}
    assert [bench.value("requests_total", model=model, **labels) for model in ("tiny", NO_MODEL)] == [1, 2]
    assert bench.plain("inflight_requests") == 0
