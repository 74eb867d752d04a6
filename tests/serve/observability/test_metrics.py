"""Every series exists from the start, and every method changes only its own."""

import asyncio
import re
from contextlib import suppress

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from serve.errors import ERRORS, InvalidRequestError, QueueFullError
from serve.observability.logs import record_request
from serve.observability.metrics import ServiceMetrics
from serve.observability.usage import RequestUsage, Timings

USAGE = RequestUsage(
    texts=2,
    source_tokens=7,
    target_tokens=9,
    timings=Timings(tokenize_seconds=0.1, queue_seconds=0.2, inference_seconds=0.3, total_seconds=0.7),
)


class Bench:
    """Metrics and the values of their series."""

    def __init__(self) -> None:
        self.service = ServiceMetrics()
        self.registry = self.service.registry
        self.metrics = self.service.of_model("tiny")

    def value(self, name: str, **labels: str) -> float | None:
        """Returns the value of a series that has the label `model`."""
        return self.registry.get_sample_value(f"dragoman_{name}", {"model": "tiny", **labels})

    def plain(self, name: str) -> float | None:
        """Returns the value of a series without labels."""
        return self.registry.get_sample_value(f"dragoman_{name}", {})

    def outcomes(self) -> dict[str, float]:
        """Returns the number of requests by outcome, zeros omitted."""
        family = next(family for family in self.registry.collect() if family.name == "dragoman_requests")
        samples = [sample for sample in family.samples if sample.name == "dragoman_requests_total" and sample.value]
        return {sample.labels["outcome"]: sample.value for sample in samples}


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("outcome", ["ok", *(error.reason for error in ERRORS)])
@pytest.mark.parametrize("protocol", ["grpc", "rest"])
def test_every_outcome_of_a_request_starts_at_zero(bench: Bench, protocol: str, outcome: str) -> None:
    assert bench.value("requests_total", protocol=protocol, method="translate", outcome=outcome) == 0


@pytest.mark.parametrize("reason", ["eos", "length", "cancelled", "deadline_exceeded", "draining", "internal"])
def test_every_reason_of_a_sequence_starts_at_zero(bench: Bench, reason: str) -> None:
    assert bench.value("sequences_finished_total", reason=reason) == 0


def test_the_series_do_not_depend_on_what_happened(bench: Bench) -> None:
    """A rate over a series that appears late misses its first increase."""

    def names() -> set[str]:
        return {line.rpartition(" ")[0] for line in generate_latest(bench.registry).decode().splitlines()}

    bench.service.set_build({"version": "1"})
    bench.metrics.set_info({"opset": "20"})
    before = names()
    bench.service.start_request()
    bench.service.finish_request("tiny", "grpc", "translate", "queue_full", 0.1)
    bench.service.observe_reload(1)
    bench.metrics.observe_response(USAGE)
    bench.metrics.observe_step("encode", 3, 0.1)
    bench.metrics.observe_finish("cancelled", 3)
    bench.metrics.observe_queue(0.1)
    bench.metrics.observe_padding(2)
    assert names() == before


def test_names_follow_the_conventions_of_prometheus(bench: Bench) -> None:
    for family in bench.registry.collect():
        assert re.fullmatch(r"dragoman_[a-z_]+", family.name)
        assert family.documentation.endswith(".")
        assert family.type in {"counter", "gauge", "histogram", "info"}
        assert not re.search(r"_(ms|us|milliseconds|kb)$", family.name)


def test_a_response_is_counted_in_texts_tokens_and_seconds(bench: Bench) -> None:
    bench.metrics.observe_response(USAGE)
    assert bench.value("request_texts_sum") == 2
    assert bench.value("source_tokens_total") == 7
    assert bench.value("target_tokens_total") == 9
    assert bench.value("request_tokenize_seconds_sum") == 0.1
    assert bench.value("request_inference_seconds_sum") == 0.3


def test_the_peak_is_the_most_that_ran_at_once(bench: Bench) -> None:
    for running in (2, 5, 1):
        bench.metrics.set_load(waiting=0, running=running, running_rows=2 * running)
    assert (bench.value("sequences_running"), bench.value("rows_running")) == (1, 2)
    assert bench.value("sequences_running_peak") == 5


def test_a_step_is_counted_under_its_phase(bench: Bench) -> None:
    bench.metrics.observe_step("decode", rows=6, seconds=0.25)
    assert bench.value("engine_steps_total", phase="decode") == 1
    assert bench.value("engine_step_seconds_sum", phase="decode") == 0.25
    assert bench.value("engine_step_sequences_sum", phase="decode") == 6
    assert bench.value("engine_steps_total", phase="encode") == 0


def test_wasted_tokens_are_counted_by_cause(bench: Bench) -> None:
    bench.metrics.observe_finish("deadline_exceeded", wasted_tokens=4)
    bench.metrics.observe_finish("eos", wasted_tokens=0)
    assert bench.value("wasted_tokens_total", cause="deadline_exceeded") == 4
    assert bench.value("sequences_finished_total", reason="deadline_exceeded") == 1
    assert bench.value("sequences_finished_total", reason="eos") == 1


def test_limits_state_and_information_are_gauges(bench: Bench) -> None:
    bench.metrics.set_limits(slots=8, queue_limit=32)
    bench.metrics.set_ready(ready=True)
    bench.service.set_state(ready=True, draining=False)
    bench.service.set_build({"version": "1.2"})
    bench.metrics.set_info({"opset": "20"})
    assert (bench.value("slots"), bench.value("queue_limit")) == (8, 32)
    assert (bench.plain("ready"), bench.plain("draining"), bench.value("model_ready")) == (1, 0, 1)
    assert bench.registry.get_sample_value("dragoman_build_info", {"version": "1.2"}) == 1
    assert bench.value("model_info", opset="20") == 1


def test_a_request_is_in_flight_until_it_ends(bench: Bench) -> None:
    with record_request(bench.service, "grpc", "translate", "id"):
        assert bench.plain("inflight_requests") == 1
    assert bench.plain("inflight_requests") == 0


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (InvalidRequestError("text", "wrong"), "invalid"),
        (QueueFullError("full"), "queue_full"),
        (asyncio.CancelledError(), "cancelled"),
        (ZeroDivisionError(), "internal"),
    ],
)
def test_every_ending_of_a_request_is_counted_once(bench: Bench, error: BaseException, outcome: str) -> None:
    with capture_logs(), suppress(BaseException), record_request(bench.service, "rest", "translate", "id") as record:
        record.model = "tiny"
        raise error
    assert bench.outcomes() == {outcome: 1}
    assert bench.plain("inflight_requests") == 0
    assert bench.value("request_duration_seconds_count", protocol="rest", outcome="error") == 1
