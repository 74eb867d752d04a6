"""An audit for R33: after requests with every outcome, the metrics add up and the gauges are 0."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.protos.translation_pb2 import TranslateRequest
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service
from tests.support.promises import Measured

GOOD: dict[str, Any] = {"text": ["alpha beta.", LONG_TEXT]}
TENSOR = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["alpha beta."]}
pytestmark = pytest.mark.promise("R33")


@pytest.fixture(scope="module")
def audited(bundle_path: Path) -> Iterator[tuple[LiveService, Counter[str]]]:
    """A service after requests with every outcome, and the counts of its clients."""
    model = GatedModel(1)
    with run_service(bundle_path, [model], queue_limit=1) as live:
        golden, submitted = live.metric("sequences_finished_total"), live.count_submitted()
        fates = Counter(answered(live) + refused(live) + crowded_out(live, model) + outrun(live, model))
        live.settle()
        # These counters change just after the gauges.
        eventually(lambda: live.metric("sequences_finished_total") - golden == len(submitted))
        live.get("/metrics")  # updates the gauges
        yield live, fates


def answered(live: LiveService) -> list[str]:
    assert live.post(GOOD).status_code == 200
    assert live.post(GOOD, path="/v1/translate/stream").status_code == 200
    assert live.post({"inputs": [TENSOR]}, path="/v2/models/fake/infer").status_code == 200
    assert len(live.call(TranslateRequest(**GOOD)).translations) == 2
    with live.call_stream(TranslateRequest(**GOOD)) as events:
        assert list(events)
    return ["ok"] * 5


def refused(live: LiveService) -> list[str]:
    assert live.post({"text": " "}).status_code == 400
    assert live.post(GOOD, path="/nowhere").status_code == 404
    assert live.post({**GOOD, "model": "other"}).status_code == 404
    assert live.post(content=b" " * (3 << 20), headers={"content-type": "application/json"}).status_code == 413
    assert live.call_error(TranslateRequest(text=[" "])).code() is grpc.StatusCode.INVALID_ARGUMENT
    return ["invalid", "invalid", "model_not_found", "too_large", "invalid"]


def crowded_out(live: LiveService, model: GatedModel) -> list[str]:
    """A canceled request holds the slot and another one the queue; two more are rejected."""
    with ThreadPoolExecutor() as pool, standing_still(model):
        with live.call_stream(TranslateRequest(text=[LONG_TEXT])) as _events:
            assert model.stepping.wait(WAIT_SECONDS)
            patient = pool.submit(live.post, {"text": LONG_TEXT})
            eventually(lambda: live.metric("sequences_waiting") == 1)
            live.get("/metrics")
            assert live.metric("queue_oldest_seconds") > 0
            assert live.post({"text": LONG_TEXT}).status_code == 429
            assert live.call_error(TranslateRequest(text=[LONG_TEXT])).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        eventually(lambda: live.metric("requests_total", outcome="cancelled") == 1)
        model.gate.set()
        assert patient.result().status_code == 200
    return ["cancelled", "ok", "queue_full", "queue_full"]


def outrun(live: LiveService, model: GatedModel) -> list[str]:
    """A deadline passes in the queue, behind a longer request."""
    with ThreadPoolExecutor() as pool, standing_still(model):
        first = pool.submit(live.post, {"text": LONG_TEXT})
        assert model.stepping.wait(WAIT_SECONDS)
        assert live.post({"text": LONG_TEXT}, headers={"x-request-timeout-ms": "500"}).status_code == 504
        model.gate.set()
        assert first.result().status_code == 200
    return ["ok", "deadline_exceeded"]


@contextmanager
def standing_still(model: GatedModel) -> Iterator[None]:
    """The next step of the model waits for the gate, at most until the block ends."""
    model.stepping.clear()
    model.gate.clear()
    try:
        yield
    finally:
        model.gate.set()


def test_outcomes_equal_the_counts_of_clients(audited: tuple[LiveService, Counter[str]], measured: Measured) -> None:
    live, fates = audited
    measured("R33", f"{fates.total()} requests of {len(fates)} fates")
    assert {outcome: live.metric("requests_total", outcome=outcome) for outcome in fates} == fates
    assert live.metric("requests_total") == fates.total()


def test_every_request_is_in_every_request_histogram(audited: tuple[LiveService, Counter[str]]) -> None:
    live, fates = audited
    for labels in ({"protocol": "rest"}, {"protocol": "grpc"}, {"outcome": "ok"}):
        assert live.metric("request_duration_seconds_count", **labels) == live.metric("requests_total", **labels)
    for name in ("texts", "source_tokens", "target_tokens", "tokenize_seconds", "inference_seconds"):
        assert live.metric(f"request_{name}_count") == fates["ok"]
    for name in ("source_tokens", "target_tokens"):
        assert live.metric(f"request_{name}_sum") == live.metric(f"{name}_total")


def test_every_sequence_is_in_every_sequence_histogram(audited: tuple[LiveService, Counter[str]]) -> None:
    live, _ = audited
    translated = sum(live.metric("sequences_finished_total", reason=reason) for reason in ("eos", "length"))
    for name in ("request_encode_seconds", "request_decode_seconds", "time_to_first_token_seconds"):
        assert live.metric(f"{name}_count") == translated
    for cause in ("cancelled", "deadline_exceeded"):
        released = live.metric("cancel_release_seconds_count", cause=cause)
        assert released == live.metric("sequences_finished_total", reason=cause) == 1
    # The sequence whose deadline passed never left the queue.
    assert live.metric("request_queue_seconds_count") == translated + 1
    assert live.metric("engine_step_seconds_count") == live.metric("engine_steps_total")


def test_the_gauges_of_an_idle_service_are_zero(audited: tuple[LiveService, Counter[str]]) -> None:
    gauges = ("sequences_running", "sequences_waiting", "rows_running", "inflight_requests", "queue_oldest_seconds")
    assert {gauge: audited[0].metric(gauge) for gauge in gauges} == dict.fromkeys(gauges, 0)
