"""Streams over real connections: deltas over both protocols; events, heartbeats and problems over REST."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from dragoman.protos.translation_pb2 import FINISH_REASON_UNSPECIFIED, TranslateRequest
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import GatedModel, LiveService
from tests.support.wire import as_json

PATH = "/v1/translate/stream"
LONG = {"text": LONG_TEXT}
Event = tuple[str, dict[str, Any]]


@contextmanager
def stream(live: LiveService, body: Any) -> Iterator[httpx.Response]:
    """Opens a stream; closes its connection at the end of the block."""
    with live.http() as client, client.stream("POST", PATH, json=body) as answer:
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


@pytest.mark.parametrize(
    "options", [{}, {"beam_size": 3, "hypotheses": 2}, {"temperature": 0.7, "seed": 3, "token_scores": True}]
)
def test_the_deltas_of_every_text_make_up_its_translation(live: LiveService, options: dict[str, Any]) -> None:
    body: Any = {"text": ["alpha beta.", LONG_TEXT, "one two three."], "options": options}
    expected = live.post(body).json()["translations"]
    with stream(live, body) as answer:
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
        assert len(answer.headers["x-request-id"]) == 32
        *events, (name, result) = read_events(answer)
    assert (name, result["translations"]) == ("result", expected)
    assert {name for name, _ in events} == {"delta"}
    with live.call_stream(TranslateRequest(**body)) as messages:
        *others, last = messages
    assert [as_json(item) for item in last.result.translations] == expected
    for index, translation in enumerate(expected):
        deltas = [delta for _, delta in events if delta["text_index"] == index]
        assert "".join(delta["text"] for delta in deltas) == translation["text"]
        assert deltas[-1]["target_tokens"] == translation["target_tokens"]
        reasons = [delta.get("finish_reason") for delta in deltas]
        assert reasons == [None] * (len(deltas) - 1) + [translation["finish_reason"]]
        grpc_deltas = [other.delta for other in others if other.delta.text_index == index]
        assert "".join(delta.text for delta in grpc_deltas) == translation["text"]
        assert grpc_deltas[-1].target_tokens == translation["target_tokens"]
        ended = [delta.finish_reason != FINISH_REASON_UNSPECIFIED for delta in grpc_deltas]
        assert ended == [False] * (len(grpc_deltas) - 1) + [True]


def test_heartbeat_comments_keep_an_idle_connection_open(
    stepwise: LiveService, model: GatedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.serve.edge.events.HEARTBEAT_SECONDS", 0.05)
    model.gate.clear()
    with stream(stepwise, LONG) as answer:
        events = read_events(answer)
        assert [next(events)[0] for _ in range(3)] == ["comment"] * 3
        model.on_step = lambda: None
        model.gate.set()
        names = [name for name, _ in events]
    assert names[-1] == "result"
    assert "delta" in names


def test_an_error_after_the_first_event_is_an_event_with_a_problem(stepwise: LiveService, model: GatedModel) -> None:
    with capture_logs(), stream(stepwise, LONG) as answer:
        events = read_events(answer)
        next(events)
        model.decode_error = RuntimeError("broken")
        model.gate.set()
        ((name, problem),) = events
    assert problem.pop("detail")
    assert (name, problem.pop("request_id")) == ("error", answer.headers["x-request-id"])
    internal = {"title": "Internal Server Error", "status": 500, "reason": "internal"}
    assert problem == {"type": "about:blank", **internal}


def test_a_connection_is_used_again_after_a_stream(live: LiveService) -> None:
    with live.http() as client:
        for _ in range(3):
            assert client.post(PATH, json=LONG).text.count("event: result\n") == 1
