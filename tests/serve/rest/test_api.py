"""The REST server over real connections: responses, problem documents, probes and metrics."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from dragoman.model.tokenizer.tokenizer import Tokenizer
from dragoman.serve.search.hypothesis import FinishReason
from tests.support.cases import cases
from tests.support.fake_bundles import LONG_TEXT, MAX_TARGET_TOKENS
from tests.support.fakes import EOS_ID, translate
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service

CASES = cases(__file__)

GOOD = {"text": "alpha beta."}


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


def test_the_request_id_of_the_client_is_returned_if_it_is_fit(live: LiveService) -> None:
    headers = {"x-request-id": "id-1"}
    assert live.post(GOOD, headers=headers).headers["x-request-id"] == "id-1"
    rejected = live.post({}, headers=headers)
    assert rejected.headers["x-request-id"] == rejected.json()["request_id"] == "id-1"
    assert len(live.post(GOOD, headers={"x-request-id": "a b"}).headers["x-request-id"]) == 32


@pytest.mark.parametrize(("method", "path", "status", "reason"), CASES["wrong http is answered with a problem"])
def test_wrong_http_is_answered_with_a_problem(
    live: LiveService, method: str, path: str, status: int, reason: str
) -> None:
    with live.http() as client:
        answer = client.request(method, path)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert (answer.status_code, problem["status"], problem["reason"]) == (status, status, reason)
    assert problem["request_id"] == answer.headers["x-request-id"]
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(("content_type", "status"), CASES["the content type must be json"])
def test_the_content_type_must_be_json(live: LiveService, content_type: str | None, status: int) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    answer = live.post(content=json.dumps(GOOD).encode(), headers=headers)
    assert (answer.status_code, answer.json().get("reason", "")) == (status, "unsupported_media_type" * (status > 200))


@pytest.mark.parametrize("timeout_ms", ["0", "-1", "1.5", "", "x", "3600001", "1_000", "٣", "9" * 5000])
def test_a_timeout_that_is_no_number_in_range_is_rejected(live: LiveService, timeout_ms: str) -> None:
    answer = live.post(GOOD, headers={"x-request-timeout-ms": timeout_ms.encode()})
    assert (answer.status_code, answer.json()["field"]) == (400, "x-request-timeout-ms")


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

    monkeypatch.setattr("dragoman.serve.service.write_metrics", write_slowly)
    with ThreadPoolExecutor(max_workers=1) as pool:
        reader = pool.submit(live.get, "/metrics")
        assert begun.wait(WAIT_SECONDS)
        try:
            assert live.post(GOOD).status_code == 200
            assert not reader.done()
        finally:
            go_on.set()
        assert reader.result().text == "written"


def test_every_request_except_probes_is_counted_and_logged_once(live: LiveService) -> None:
    live.settle()
    before = live.metric("requests_total")
    with capture_logs() as logs:
        assert live.get("/healthz").json() == {"status": "live"}
        assert live.get("/readyz").json() == {"status": "ready"}
        live.get("/metrics")
        live.post(GOOD)
        live.post({"text": ""})
        live.get("/nowhere")
        live.settle()
    assert [log["outcome"] for log in logs if log["event"] == "request"] == ["ok", "invalid", "invalid"]
    assert live.metric("requests_total") == live.metric("request_duration_seconds_count") == before + 3


def test_the_metrics_hold_every_part_of_the_service(gated: LiveService) -> None:
    gated.post(GOOD)
    answer = gated.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    for series in (
        'dragoman_requests_total{method="translate",model="fake",outcome="ok",protocol="rest"} 1.0',
        *('dragoman_slots{model="fake"} 1.0', 'dragoman_queue_limit{model="fake"} 1.0', "dragoman_ready 1.0"),
        *("process_resident_memory_bytes ", "python_gc_collections_total", "dragoman_build_info{"),
        'dragoman_model_info{directions="en-de",model="fake",opset="20"',
    ):
        assert f"\n{series}" in answer.text
