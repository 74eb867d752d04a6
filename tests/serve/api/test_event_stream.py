"""Event streams over real REST connections: events, heartbeats, problems and early ends."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from serve.translation.translator import Translator
from tests.support.live import LONG_TEXT, GatedModel, LiveService, eventually

PATH = "/v1/translate/stream"
LONG = {"text": LONG_TEXT}
Event = tuple[str, dict[str, Any]]


@contextmanager
def stream(live: LiveService, body: Any, **options: Any) -> Iterator[httpx.Response]:
    """Opens a stream; closes its connection at the end of the block."""
    with live.http() as client, client.stream("POST", PATH, json=body, **options) as answer:
        yield answer


def read_events(answer: httpx.Response) -> Iterator[Event]:
    """Yields names and data of events; checks that ids count from 1. A comment has the name `comment`."""
    number = 0
    fields: dict[str, str] = {}
    for line in answer.iter_lines():
        if line:
            name, _, value = line.partition(": ")
            fields[name] = value
        elif "data" in fields:
            number += 1
            assert fields["id"] == str(number)
            yield fields["event"], json.loads(fields["data"])
            fields = {}
        else:
            yield "comment", {}
            fields = {}


@pytest.mark.parametrize("options", [{}, {"beam_size": 3, "hypotheses": 2}, {"temperature": 0.7, "seed": 3}])
def test_the_deltas_of_every_text_make_up_its_translation(live: LiveService, options: dict[str, Any]) -> None:
    body = {"text": ["alpha beta.", LONG_TEXT, "one two three."], "options": options}
    expected = live.post(body).json()["translations"]
    with stream(live, body) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert len(answer.headers["x-request-id"]) == 32
        *events, (name, result) = read_events(answer)
    assert (name, result["translations"]) == ("result", expected)
    assert {name for name, _ in events} == {"delta"}
    for index, translation in enumerate(expected):
        deltas = [delta for _, delta in events if delta["text_index"] == index]
        assert "".join(delta["text"] for delta in deltas) == translation["text"]
        assert deltas[-1]["target_tokens"] == translation["target_tokens"]
        reasons = [delta.get("finish_reason") for delta in deltas]
        assert reasons == [None] * (len(deltas) - 1) + [translation["finish_reason"]]


def test_a_token_comes_before_the_next_one_is_computed(stepwise: LiveService, model: GatedModel) -> None:
    with stream(stepwise, LONG) as answer:
        events = read_events(answer)
        _, delta = next(events)
        assert delta["target_tokens"] == len(model.steps) == 1
        model.on_step = lambda: None
        model.gate.set()
        assert len(list(events)) > 1


@pytest.mark.promise("R18")
def test_when_the_client_goes_away_the_slot_is_free_within_one_step(stepwise: LiveService, model: GatedModel) -> None:
    with stream(stepwise, LONG) as answer:
        next(read_events(answer))
    stepwise.settle()
    assert stepwise.metric("requests_total", protocol="rest", method="translate_stream", outcome="cancelled") == 1
    model.gate.set()
    eventually(lambda: stepwise.metric("sequences_running") == 0)
    assert stepwise.metric("sequences_finished_total", reason="cancelled") == 1
    assert len(model.steps) <= 2


def test_a_client_that_goes_away_before_the_first_event_costs_no_further_step(
    stepwise: LiveService, model: GatedModel
) -> None:
    model.gate.clear()
    with stepwise.http() as client, pytest.raises(httpx.ReadTimeout):
        client.post(PATH, json=LONG, timeout=1.0)
    stepwise.settle()
    assert stepwise.metric("requests_total", method="translate_stream", outcome="cancelled") == 1
    model.gate.set()
    eventually(lambda: stepwise.metric("sequences_running") == 0)
    assert len(model.steps) == 1


def test_heartbeat_comments_keep_an_idle_connection_open(
    stepwise: LiveService, model: GatedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serve.api.sse.HEARTBEAT_SECONDS", 0.05)
    model.gate.clear()
    with stream(stepwise, LONG) as answer:
        events = read_events(answer)
        assert [next(events)[0] for _ in range(3)] == ["comment"] * 3
        model.on_step = lambda: None
        model.gate.set()
        names = [name for name, _ in events]
    assert names[-1] == "result"
    assert "delta" in names


def test_a_failure_after_the_first_event_is_an_event_without_details(stepwise: LiveService, model: GatedModel) -> None:
    with capture_logs(), stream(stepwise, LONG) as answer:
        events = read_events(answer)
        next(events)
        model.decode_error = RuntimeError("a detail of the inside")
        model.gate.set()
        (event,) = events
    assert event == (
        "error",
        {
            "type": "about:blank",
            "title": "Internal Server Error",
            "status": 500,
            "detail": "the translation failed inside the server",
            "reason": "internal",
            "request_id": answer.headers["x-request-id"],
        },
    )
    stepwise.settle()
    assert stepwise.metric("requests_total", method="translate_stream", outcome="internal") == 1


def test_an_unexpected_error_after_the_first_event_reveals_no_details(
    stepwise: LiveService, model: GatedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("a detail of the inside")

    monkeypatch.setattr(Translator, "_translated", fail)
    with capture_logs() as logs, stream(stepwise, LONG) as answer:
        events = read_events(answer)
        next(events)
        model.on_step = lambda: None
        model.gate.set()
        *_, (name, problem) = events
    assert (name, problem["reason"]) == ("error", "internal")
    assert "inside" not in str(problem)
    assert [log["request_id"] for log in logs if log["event"] == "unexpected_error"] == [problem["request_id"]]


def test_a_stream_past_its_deadline_ends_with_an_error_event(stepwise: LiveService, model: GatedModel) -> None:
    with stream(stepwise, LONG, headers={"x-request-timeout-ms": "2000"}) as answer:
        events = read_events(answer)
        next(events)
        ((name, problem),) = events
    assert (name, problem["status"], problem["reason"]) == ("error", 504, "deadline_exceeded")
    stepwise.settle()
    assert stepwise.metric("requests_total", outcome="deadline_exceeded") == 1
    model.gate.set()
    eventually(lambda: stepwise.metric("sequences_running") == 0)
    assert len(model.steps) <= 2


def test_an_error_before_the_first_event_sets_the_status(stepwise: LiveService, model: GatedModel) -> None:
    blank = stepwise.post({"text": " "}, path=PATH)
    assert (blank.status_code, blank.json()["field"]) == (400, "text[0]")
    assert blank.headers["content-type"] == "application/problem+json"
    with stream(stepwise, LONG) as answer:
        # Keeps a reference: a collected iterator closes its connection and ends its request.
        events = read_events(answer)
        next(events)
        full = stepwise.post({"text": ["alpha", "beta"]}, path=PATH)
        assert (full.status_code, full.json()["reason"], full.headers["retry-after"]) == (429, "queue_full", "1")
    model.gate.set()


@pytest.mark.promise("R22")
def test_a_stream_is_finished_before_the_server_stops(stepwise: LiveService, model: GatedModel) -> None:
    with stream(stepwise, LONG) as answer:
        events = read_events(answer)
        next(events)
        stepwise.stop()
        eventually(lambda: stepwise.health() == "NOT_SERVING")
        model.on_step = lambda: None
        model.gate.set()
        *_, (name, _) = events
    assert name == "result"
    stepwise.join()


def test_a_connection_is_used_again_after_a_stream(live: LiveService) -> None:
    with live.http() as client:
        for _ in range(3):
            assert client.post(PATH, json=LONG).text.count("event: result\n") == 1


def test_the_documentation_describes_the_events(live: LiveService) -> None:
    paths = live.get("/openapi.json").json()["paths"]
    operation = paths[PATH]["post"]
    assert operation["requestBody"] == paths["/v1/translate"]["post"]["requestBody"]
    example = operation["responses"]["200"]["content"]["text/event-stream"]["example"]
    assert [line for line in example.split("\n") if line.startswith("event")] == [
        "event: delta",
        "event: delta",
        "event: result",
    ]
    assert {"400", "429", "500", "503", "504"} <= set(operation["responses"])
