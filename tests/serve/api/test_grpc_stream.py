"""Translation streams over real gRPC connections: events and early ends."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from protos.translation_pb2 import FINISH_REASON_UNSPECIFIED, SearchOptions, TranslateRequest, TranslateStreamResponse
from tests.support.live import LONG_TEXT, GatedModel, LiveService, eventually

LONG = TranslateRequest(text=[LONG_TEXT])


def refusal(live: LiveService, message: TranslateRequest | bytes) -> Any:
    """Returns the error of a stream that fails before its first event."""
    with live.call_stream(message) as stream, pytest.raises(grpc.RpcError) as raised:
        next(stream)
    return raised.value


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(),
        SearchOptions(beam_size=3, hypotheses=2),
        SearchOptions(temperature=0.7, seed=3, token_scores=True),
    ],
)
def test_the_deltas_of_every_text_make_up_its_translation(live: LiveService, options: SearchOptions) -> None:
    request = TranslateRequest(text=["alpha beta.", LONG_TEXT, "one two three."], options=options)
    expected = live.call(request).translations
    with live.call_stream(request) as stream:
        *events, last = stream
    assert list(last.result.translations) == list(expected)
    for index, translation in enumerate(expected):
        deltas = [event.delta for event in events if event.delta.text_index == index]
        assert "".join(delta.text for delta in deltas) == translation.text
        assert deltas[-1].target_tokens == translation.target_tokens
        reasons = [delta.finish_reason for delta in deltas]
        assert reasons == [FINISH_REASON_UNSPECIFIED] * (len(deltas) - 1) + [translation.finish_reason]


def first_event(stream: Iterator[TranslateStreamResponse]) -> TranslateStreamResponse:
    """Returns the events of the first step; the gate is closed then."""
    event = next(stream)
    assert event.delta.text
    return event


def test_a_token_comes_before_the_next_one_is_computed(stepwise: LiveService, model: GatedModel) -> None:
    with stepwise.call_stream(LONG) as stream:
        assert first_event(stream).delta.target_tokens == len(model.steps) == 1
        model.on_step = lambda: None
        model.gate.set()
        assert len(list(stream)) > 1


@pytest.mark.promise("R17")
def test_when_the_client_cancels_the_slot_is_free_within_one_step(stepwise: LiveService, model: GatedModel) -> None:
    with stepwise.call_stream(LONG) as stream:
        first_event(stream)
        stream.cancel()
        stepwise.settle()
    model.gate.set()
    eventually(lambda: stepwise.metric("sequences_running") == 0)
    assert stepwise.metric("sequences_finished_total", reason="cancelled") == 1
    assert stepwise.metric("requests_total", protocol="grpc", method="translate_stream", outcome="cancelled") == 1
    assert len(model.steps) <= 2


def test_when_the_connection_breaks_the_slot_is_free_within_one_step(stepwise: LiveService, model: GatedModel) -> None:
    with stepwise.call_stream(LONG) as stream:
        first_event(stream)
    stepwise.settle()
    model.gate.set()
    eventually(lambda: stepwise.metric("sequences_running") == 0)
    assert stepwise.metric("sequences_finished_total", reason="cancelled") == 1
    assert len(model.steps) <= 2


def test_a_stream_past_its_deadline_ends_with_deadline_exceeded(stepwise: LiveService, model: GatedModel) -> None:
    with stepwise.call_stream(LONG, timeout=2.0) as stream:
        first_event(stream)
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
    error: Any = raised.value
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    stepwise.settle()
    assert stepwise.metric("requests_total", outcome="deadline_exceeded") == 1
    model.gate.set()
    eventually(lambda: stepwise.metric("sequences_running") == 0)
    assert len(model.steps) <= 2


def test_a_failure_after_the_first_token_ends_the_stream_without_details(
    stepwise: LiveService, model: GatedModel
) -> None:
    with capture_logs(), stepwise.call_stream(LONG) as stream:
        first_event(stream)
        model.decode_error = RuntimeError("a detail of the inside")
        model.gate.set()
        with pytest.raises(grpc.RpcError) as raised:
            next(stream)
    error: Any = raised.value
    assert error.code() is grpc.StatusCode.INTERNAL
    assert error.details() == "the translation failed inside the server"
    assert len(dict(error.trailing_metadata())["x-request-id"]) == 32


def test_a_rejected_stream_has_no_events(stepwise: LiveService) -> None:
    error = refusal(stepwise, TranslateRequest(text=[" "]))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error.details().startswith("text[0]: ")
    assert refusal(stepwise, b"\xff").code() is grpc.StatusCode.INVALID_ARGUMENT
    with stepwise.call_stream(LONG) as stream:
        first_event(stream)
        full = refusal(stepwise, TranslateRequest(text=["alpha", "beta"]))
    assert full.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(full.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"


@pytest.mark.promise("R22")
def test_a_stream_is_finished_before_the_server_stops(stepwise: LiveService, model: GatedModel) -> None:
    with stepwise.call_stream(LONG) as stream:
        text = first_event(stream).delta.text
        stepwise.stop()
        eventually(lambda: stepwise.health() == "NOT_SERVING")
        model.on_step = lambda: None
        model.gate.set()
        *events, last = stream
    text += "".join(event.delta.text for event in events)
    assert text == last.result.translations[0].text
    stepwise.join()
