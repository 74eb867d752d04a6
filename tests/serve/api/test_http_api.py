"""The REST server over real connections: responses, problem documents, deadlines, disconnects and probes."""

import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from model.tokenizer.tokenizer import Tokenizer
from serve.api.http_body import TranslateBody
from serve.search.hypothesis import FinishReason
from serve.translation.fields import SearchFields
from tests.support.fakes import EOS_ID, translate
from tests.support.live import (
    LONG_TEXT,
    MAX_TARGET_TOKENS,
    WAIT_SECONDS,
    GatedModel,
    LiveService,
    eventually,
    run_service,
)
from tests.support.promises import Measured

GOOD = {"text": "alpha beta."}


def connect(live: LiveService) -> socket.socket:
    return socket.create_connection(("127.0.0.1", live.service.http_port), timeout=WAIT_SECONDS)


def raw_request(body: bytes, headers: str = "") -> bytes:
    head = f"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{headers}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def test_every_text_is_answered_in_order(live: LiveService, tokenizer: Tokenizer) -> None:
    texts = ["alpha beta.", LONG_TEXT, "one two three."]
    answer = live.post({"text": texts, "source_language": "en", "target_language": "de"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    for text, translation in zip(texts, document["translations"], strict=True):
        source_ids = (*tokenizer.encode(text), EOS_ID)
        target_ids, score, reason = translate(source_ids, MAX_TARGET_TOKENS)
        assert translation == {
            "text": tokenizer.decode(target_ids),
            "score": pytest.approx(score),
            "finish_reason": reason,
            "source_tokens": len(source_ids),
            "target_tokens": len(target_ids),
            "normalized_score": pytest.approx(score / (len(target_ids) + (reason is FinishReason.EOS))),
            "alternatives": [],
            "sentences": 1,
            "cut_sentences": 0,
        }
    assert set(document["timings"]) == {"tokenize_seconds", "queue_seconds", "inference_seconds", "total_seconds"}


def test_one_text_needs_no_list(live: LiveService) -> None:
    assert len(live.post(GOOD).json()["translations"]) == 1


def test_a_limited_translation_has_the_finish_reason_length(live: LiveService) -> None:
    (translation,) = live.post({"text": LONG_TEXT, "options": {"max_target_tokens": 2}}).json()["translations"]
    assert (translation["target_tokens"], translation["finish_reason"]) == (2, "length")


def test_many_requests_share_one_connection(live: LiveService) -> None:
    with live.http() as client:
        for _ in range(5):
            assert client.post("/v1/translate", json=GOOD).status_code == 200


def test_the_request_id_of_the_client_is_returned(live: LiveService) -> None:
    headers = {"x-request-id": "id-1"}
    assert live.post(GOOD, headers=headers).headers["x-request-id"] == "id-1"
    refused = live.post({}, headers=headers)
    assert refused.headers["x-request-id"] == refused.json()["request_id"] == "id-1"


def test_a_request_without_a_fit_id_gets_one(live: LiveService) -> None:
    assert len(live.post(GOOD).headers["x-request-id"]) == 32
    assert len(live.post(GOOD, headers={"x-request-id": "a b"}).headers["x-request-id"]) == 32


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/translate/", 404, "not_found"),
        ("GET", "/v1/translate", 405, "method_not_allowed"),
        ("POST", "/healthz", 405, "method_not_allowed"),
    ],
)
def test_wrong_http_is_answered_with_a_problem(
    live: LiveService, method: str, path: str, status: int, reason: str
) -> None:
    with live.http() as client:
        answer = client.request(method, path)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["reason"]) == (status, status, reason)
    assert problem["request_id"] == answer.headers["x-request-id"]
    live.settle()
    assert live.metric("requests_total", protocol="rest", outcome="invalid") == 1


def test_a_wrong_method_gets_the_allowed_one(live: LiveService) -> None:
    assert live.get("/v1/translate").headers["allow"] == "POST"


@pytest.mark.parametrize("content_type", [None, "text/plain", "application/x-www-form-urlencoded", "application/jsonp"])
def test_another_content_type_is_refused(live: LiveService, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    answer = live.post(content=json.dumps(GOOD).encode(), headers=headers)
    assert (answer.status_code, answer.json()["reason"]) == (415, "unsupported_media_type")


def test_a_content_type_may_have_parameters(live: LiveService) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    assert live.post(content=json.dumps(GOOD).encode(), headers=headers).status_code == 200


@pytest.mark.parametrize("timeout_ms", ["0", "-1", "1.5", "", "x", "3600001", "1_000", "٣", "9" * 5000])
def test_a_timeout_that_is_no_number_in_range_is_refused(live: LiveService, timeout_ms: str) -> None:
    answer = live.post(GOOD, headers={"x-request-timeout-ms": timeout_ms.encode()})
    assert (answer.status_code, answer.json()["field"]) == (400, "x-request-timeout-ms")


@pytest.mark.promise("R17")
def test_when_the_deadline_passes_the_slot_is_free_within_one_step(
    gated: LiveService, model: GatedModel, measured: Measured
) -> None:
    model.gate.clear()
    answer = gated.post({"text": LONG_TEXT}, headers={"x-request-timeout-ms": "1000"})
    assert (answer.status_code, answer.json()["reason"]) == (504, "deadline_exceeded")
    model.gate.set()
    eventually(lambda: gated.metric("sequences_running") == 0)
    assert gated.metric("sequences_finished_total", reason="deadline_exceeded") == 1
    assert len(model.steps) == 1
    measured("R17", f"{len(model.steps)} step, {gated.metric('wasted_tokens_total'):.0f} token for nothing")


def test_the_deadline_counts_while_the_body_is_read(live: LiveService) -> None:
    """A client that never completes its request must not hold it open."""
    with connect(live) as connection:
        connection.sendall(raw_request(b'{"text": "alpha"}', "x-request-timeout-ms: 50\r\n")[:-1])
        assert connection.recv(1000).startswith(b"HTTP/1.1 504 ")


def test_a_full_queue_rejects_at_once_with_a_retry_delay(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        accepted = pool.submit(gated.post, {"text": [LONG_TEXT, LONG_TEXT]})
        assert model.stepping.wait(WAIT_SECONDS)
        refused = gated.post(GOOD)
        assert (refused.status_code, refused.json()["reason"]) == (429, "queue_full")
        assert refused.headers["retry-after"] == "1"
        model.gate.set()
        assert accepted.result().status_code == 200


@pytest.mark.promise("R16")
def test_a_deadline_passes_in_the_queue_even_if_the_slots_are_blocked(
    gated: LiveService, model: GatedModel, measured: Measured
) -> None:
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(gated.post, {"text": LONG_TEXT})
        assert model.stepping.wait(WAIT_SECONDS)
        late = gated.post({"text": LONG_TEXT}, headers={"x-request-timeout-ms": "1000"})
        assert (late.status_code, late.json()["reason"]) == (504, "deadline_exceeded")
        model.gate.set()
        assert running.result().status_code == 200
    eventually(lambda: gated.metric("sequences_finished_total", reason="deadline_exceeded") == 1)
    assert gated.metric("wasted_tokens_total", cause="deadline_exceeded") == 0
    measured("R16", f"error {late.elapsed.total_seconds() * 1000 - 1000:.0f} ms after its deadline of 1,000 ms")


@pytest.mark.promise("R18")
def test_when_the_client_goes_away_the_slot_is_free_within_one_step(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with connect(gated) as connection:
        connection.sendall(raw_request(json.dumps({"text": LONG_TEXT}).encode()))
        assert model.stepping.wait(WAIT_SECONDS)
    gated.settle()
    assert gated.metric("requests_total", protocol="rest", outcome="cancelled") == 1
    model.gate.set()
    eventually(lambda: gated.metric("sequences_running") == 0)
    assert gated.metric("sequences_finished_total", reason="cancelled") == 1
    assert len(model.steps) == 1


def test_a_client_that_goes_away_before_its_body_is_complete_costs_no_step(
    gated: LiveService, model: GatedModel
) -> None:
    with connect(gated) as connection:
        connection.sendall(raw_request(json.dumps(GOOD).encode())[:-1])
        eventually(lambda: gated.metric("inflight_requests") == 1)
    gated.settle()
    assert gated.metric("requests_total", outcome="cancelled") == 1
    assert model.steps == []


def test_an_unexpected_error_reveals_no_details(live: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_request: Any) -> None:
        raise ZeroDivisionError("a detail of the inside")

    monkeypatch.setattr(live.pipeline.translator, "translate", fail)
    with capture_logs() as logs:
        answer = live.post(GOOD)
    assert (answer.status_code, answer.json()["reason"]) == (500, "internal")
    assert "inside" not in answer.text
    assert [log["request_id"] for log in logs if log["event"] == "unexpected_error"] == [answer.json()["request_id"]]


def test_probes_answer_and_are_neither_counted_nor_logged(live: LiveService) -> None:
    with capture_logs() as logs:
        assert live.get("/healthz").json() == {"status": "live"}
        assert live.get("/readyz").json() == {"status": "ready"}
        assert live.get("/metrics").status_code == 200
    assert [log for log in logs if log["event"] == "request"] == []
    assert live.metric("requests_total") == 0


@pytest.mark.promise("R29")
def test_a_server_with_a_hanging_model_is_neither_ready_nor_live(bundle_path: Path) -> None:
    model = GatedModel(1)
    with run_service(bundle_path, [model], step_timeout_seconds=0.2) as live, ThreadPoolExecutor() as pool:
        model.gate.clear()
        answer = pool.submit(live.post, {"text": LONG_TEXT})
        eventually(lambda: live.get("/healthz").json() == {"status": "hanging"})
        assert live.get("/healthz").status_code == 503
        assert live.get("/readyz").status_code == 503
        model.gate.set()
        assert answer.result().status_code == 200
        eventually(lambda: live.get("/healthz").status_code == 200)
        eventually(lambda: live.get("/readyz").status_code == 200)


def test_reading_the_metrics_does_not_block_requests(live: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def write_slowly(_: CollectorRegistry) -> bytes:
        begun.set()
        assert go_on.wait(WAIT_SECONDS)
        return b"written"

    monkeypatch.setattr("serve.api.http_api.write_metrics", write_slowly)
    with ThreadPoolExecutor(max_workers=1) as pool:
        reader = pool.submit(live.get, "/metrics")
        assert begun.wait(WAIT_SECONDS)
        try:
            assert live.post(GOOD).status_code == 200
            assert not reader.done()
        finally:
            go_on.set()
        assert reader.result().text == "written"


def test_every_request_is_counted_and_logged_once(live: LiveService) -> None:
    with capture_logs() as logs:
        live.post(GOOD)
        live.post({"text": ""})
        live.get("/nowhere")
        live.settle()
    outcomes = [log["outcome"] for log in logs if log["event"] == "request"]
    assert outcomes == ["ok", "invalid", "invalid"]
    assert live.metric("requests_total") == live.metric("request_duration_seconds_count") == 3


def test_the_metrics_hold_every_part_of_the_service(live: LiveService) -> None:
    live.post(GOOD)
    answer = live.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    for series in (
        'dragoman_requests_total{method="translate",model="fake",outcome="ok",protocol="rest"} 1.0',
        'dragoman_slots{model="fake"} 8.0',
        "dragoman_ready 1.0",
        "process_resident_memory_bytes ",
        "python_gc_collections_total",
        'dragoman_model_info{directions="en-de",model="fake",opset="20"',
    ):
        assert f"\n{series}" in answer.text


def test_the_documentation_describes_the_request(live: LiveService) -> None:
    operation = live.get("/openapi.json").json()["paths"]["/v1/translate"]["post"]
    body = operation["requestBody"]["content"]["application/json"]
    assert set(body["schema"]["properties"]) == set(TranslateBody.model_fields)
    assert set(body["schema"]["properties"]["options"]["properties"]) == set(SearchFields.model_fields)
    assert "$ref" not in json.dumps(body["schema"])
    assert {"200", "400", "413", "429", "500", "503", "504"} <= set(operation["responses"])
    assert live.get("/docs").status_code == 200
