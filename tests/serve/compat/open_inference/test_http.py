"""The Open Inference Protocol over real REST connections: health, tensors, generated text and errors."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from dragoman.serve.compat.open_inference.protocol import OUTPUTS
from dragoman.serve.scheduler.sequence import DecodingSequence
from tests.support.calls import REST, open_call
from tests.support.cases import cases
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service

CASES = cases(__file__)

MODEL = "/v2/models/fake"
INFER = f"{MODEL}/infer"
TENSOR: dict[str, Any] = {"name": "text_input", "shape": [1], "datatype": "BYTES", "data": ["alpha beta."]}
GOOD: dict[str, Any] = {"inputs": [TENSOR]}
Answer = dict[str, Any]


def expected(live: LiveService, *texts: str) -> list[Answer]:
    return list(live.post({"text": texts}).json()["translations"])


def infer(live: LiveService, texts: list[Any], shape: list[int], **fields: Any) -> Answer:
    answer = live.post({"inputs": [{**TENSOR, "data": texts, "shape": shape}], **fields}, path=INFER)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def error_field(answer: httpx.Response) -> str:
    """Returns the field that an error names; an error has the form of the protocol."""
    assert set(answer.json()) == {"error"}
    return str(answer.json()["error"]).partition(": ")[0]


@pytest.mark.parametrize(
    ("texts", "shape"), [(["alpha beta.", LONG_TEXT], [2]), ([["alpha beta."], [LONG_TEXT]], [2, 1])]
)
def test_rows_may_be_flat_or_nested_and_outputs_have_the_shape_of_the_input(
    live: LiveService, texts: list[Any], shape: list[int]
) -> None:
    answer = infer(live, texts, shape, id="a-1")
    assert (answer["id"], answer["model_name"], len(answer["model_version"])) == ("a-1", "fake", 12)
    translations = expected(live, "alpha beta.", LONG_TEXT)
    assert [output["name"] for output in answer["outputs"]] == list(OUTPUTS)
    for output in answer["outputs"]:
        name = "text" if output["name"] == "text_output" else output["name"]
        assert (output["shape"], output["data"]) == (shape, [translation[name] for translation in translations])
    assert set(answer["parameters"]) == {"tokenize_seconds", "queue_seconds", "inference_seconds", "total_seconds"}


def test_a_path_may_include_the_version(live: LiveService) -> None:
    (version,) = live.get(MODEL).json()["versions"]
    for path in ("", "/ready", "/config"):
        assert live.get(f"{MODEL}/versions/{version}{path}").json() == live.get(f"{MODEL}{path}").json()
    assert live.post(GOOD, path=f"{MODEL}/versions/{version}/infer").status_code == 200
    assert live.post(GOOD, path=f"{MODEL}/versions/1/infer").status_code == 404


@pytest.mark.parametrize(("notes", "header", "field"), CASES["binary data of the wrong length is rejected by name"])
def test_binary_data_of_the_wrong_length_is_rejected_by_name(
    live: LiveService, notes: Answer, header: int | str | None, field: str
) -> None:
    """The header states a number of bytes after the JSON."""
    tensor = {**TENSOR, "parameters": notes}
    if "binary_data_size" in notes:
        del tensor["data"]
    head = json.dumps({"inputs": [tensor]}).encode()
    behind = header if isinstance(header, int) else 0
    length = len(head) if behind >= 0 else len(head) - behind
    value = header if isinstance(header, str) else str(length)
    headers = {} if header is None else {"inference-header-content-length": value}
    answer = live.post(content=head + max(behind, 0) * b"\xff", headers=headers, path=INFER)
    assert answer.status_code == 400
    assert error_field(answer) == field


@pytest.mark.parametrize(("fields", "field"), CASES["the invalid field is named"])
def test_the_invalid_field_is_named(live: LiveService, fields: Answer, field: str) -> None:
    answer = live.post(content=json.dumps({**GOOD, **fields}).encode(), path=INFER)
    assert answer.status_code == 400
    assert error_field(answer) == field


@pytest.mark.parametrize(("method", "path", "status"), CASES["errors of every kind have the format of the protocol"])
def test_errors_of_every_kind_have_the_format_of_the_protocol(
    live: LiveService, method: str, path: str, status: int
) -> None:
    with live.http() as client:
        answer = client.request(method, path, json=GOOD if method == "POST" else None)
    assert (answer.status_code, set(answer.json())) == (status, {"error"})
    assert len(answer.headers["x-request-id"]) == 32


def test_health_requests_are_not_counted_and_report_readiness(bundle_path: Path) -> None:
    model = GatedModel(1)
    model.gate.clear()
    with run_service(bundle_path, [model], wait_ready=False) as service:
        assert service.get("/v2/health/live").json() == {"live": True}
        assert service.get("/v2/health/ready").json() == {"ready": False}
        assert service.get("/v2/health/ready").status_code == 503
        assert service.metric("requests_total") == 0
        assert (service.get(f"{MODEL}/ready").status_code, service.post(GOOD, path=INFER).status_code) == (503, 503)
        with service.http() as client:
            (model_index,) = client.post("/v2/repository/index").json()
            assert (model_index["state"], model_index["reason"]) == ("LOADING", "warming up")
            assert client.post("/v2/repository/index", json={"ready": True}).json() == []
        model.gate.set()
        eventually(lambda: service.get("/v2/health/ready").status_code == 200)


def test_one_text_is_generated(live: LiveService) -> None:
    body = {"text_input": LONG_TEXT, "id": "g-1", "parameters": {"max_tokens": 3}}
    answer = live.post(body, path=f"{MODEL}/generate").json()
    (translation,) = live.post({"text": LONG_TEXT, "options": {"max_target_tokens": 3}}).json()["translations"]
    assert (answer["id"], answer["model_name"], answer["text_output"]) == ("g-1", "fake", translation["text"])
    names = set(OUTPUTS) - {"text_output"}
    assert {name: answer[name] for name in names} == {name: translation[name] for name in names}


@pytest.mark.parametrize("stream", [None, True, False])
def test_generated_text_is_streamed(live: LiveService, stream: bool | None) -> None:
    parameters = {} if stream is None else {"stream": stream}
    answer = live.post({"text_input": LONG_TEXT, "parameters": parameters}, path=f"{MODEL}/generate_stream")
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]
    (translation,) = expected(live, LONG_TEXT)
    assert "".join(event["text_output"] for event in events) == translation["text"]
    assert events[-1]["finish_reason"] == translation["finish_reason"]
    assert (len(events) == 1) == (stream is False)


def test_a_full_queue_returns_a_retry_delay(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with open_call(gated, REST, LONG_TEXT), open_call(gated, REST, LONG_TEXT):
        eventually(lambda: gated.metric("sequences_running") + gated.metric("sequences_waiting") == 2)
        rejected = gated.post(GOOD, path=INFER)
        assert (rejected.status_code, rejected.headers["retry-after"]) == (429, "1")


def test_a_request_of_lower_priority_waits(bundle_path: Path) -> None:
    model = GatedModel(1)
    with run_service(bundle_path, [model], queue_limit=9) as service, ThreadPoolExecutor() as pool:
        started: list[int] = []
        schedule = service.scheduler.schedule

        def schedule_and_look(free_rows: int, running_rows: int) -> list[DecodingSequence]:
            scheduled = schedule(free_rows, running_rows)
            started.extend(sequence.group.priority for sequence in scheduled)
            return scheduled

        service.scheduler.schedule = schedule_and_look  # type: ignore[method-assign]
        model.stepping.clear()
        model.gate.clear()

        def ask(priority: int) -> int:
            return service.post({**GOOD, "parameters": {"priority": priority}}, path=INFER).status_code

        requested = [pool.submit(ask, 0)]
        assert model.stepping.wait(WAIT_SECONDS)
        for waiting, priority in enumerate((3, 0), 1):
            requested.append(pool.submit(ask, priority))
            eventually(lambda count=waiting: service.metric("sequences_waiting") == count)  # type: ignore[misc]
        model.gate.set()
        assert [item.result(WAIT_SECONDS) for item in requested] == [200, 200, 200]
    first, usual, background = started
    assert first == usual > background


def test_every_request_is_counted_by_its_method(live: LiveService) -> None:
    def counts() -> list[float]:
        live.settle()
        methods = ("infer", "generate", "generate_stream", "other")
        return [live.metric("requests_total", method=method, protocol="rest") for method in methods]

    before = counts()
    live.post(GOOD, path=INFER)
    live.post({"text_input": "alpha."}, path=f"{MODEL}/generate")
    live.post({"text_input": "alpha."}, path=f"{MODEL}/generate_stream")
    live.get("/v2")
    assert [after - then for after, then in zip(counts(), before, strict=True)] == [1, 1, 1, 1]
