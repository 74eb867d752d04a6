"""A request that ends early, over every protocol: it frees its slot with the current step and reveals no details."""

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from dragoman.serve.translation.translator import Translator
from tests.support.calls import GRPC, GRPC_MANY, GRPC_STREAM, REST, SINGLE_WAYS, STREAMS, WAYS, Way, open_call
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually
from tests.support.promises import Measured

# Whether a request ends after its first token, or during its first step.
CASES = [*((way, False) for way in WAYS), *((way, True) for way in STREAMS)]
# gRPC rounds deadlines up, by a hundredth at most.
PASSED_SECONDS = 1.1 * WAIT_SECONDS
INSIDE = "a detail of the inside"


@contextmanager
def begin(
    live: LiveService, model: GatedModel, way: Way, *, streamed: bool, timeout_seconds: float = WAIT_SECONDS
) -> Iterator[Any]:
    """Opens a request; the block begins in its first step, or after it."""
    if not streamed:
        model.gate.clear()
    with open_call(live, way, LONG_TEXT, timeout_seconds) as call:
        if streamed:
            call.first_token()
            assert len(model.steps) == 1, "a token must come before the next one is computed"
        else:
            assert model.stepping.wait(WAIT_SECONDS)
        yield call


def assert_freed(live: LiveService, model: GatedModel, way: Way, outcome: str, *, streamed: bool) -> None:
    """Checks that the request is counted, and that its slot is free after the step that runs."""
    live.settle()
    assert live.metric("requests_total", protocol=way.protocol, method=way.method, outcome=outcome) == 1
    model.gate.set()
    eventually(lambda: live.metric("sequences_running") + live.metric("sequences_waiting") == 0)
    assert len(model.steps) <= 1 + streamed
    # The counters of finished sequences change just after the gauges.
    eventually(lambda: any(live.metric("sequences_finished_total", reason=name) for name in (outcome, "cancelled")))


@pytest.mark.promise("R17")
@pytest.mark.parametrize(("way", "streamed"), CASES, ids=str)
def test_when_the_deadline_passes_the_slot_is_free_within_one_step(
    stepwise: LiveService,
    model: GatedModel,
    way: Way,
    measured: Measured,
    monkeypatch: pytest.MonkeyPatch,
    *,
    streamed: bool,
) -> None:
    # The client may have the first token before the server ends its write.
    monkeypatch.setattr("dragoman.serve.grpc.call.SEND_TIMEOUT_SECONDS", 2 * PASSED_SECONDS)
    with begin(stepwise, model, way, streamed=streamed) as call:
        stepwise.leap(PASSED_SECONDS)
        assert call.failure().reason == "deadline_exceeded"
        assert_freed(stepwise, model, way, "deadline_exceeded", streamed=streamed)
    wasted = stepwise.metric("wasted_tokens_total")
    measured("R17", f"{way}: {len(model.steps)} steps, {wasted:.0f} tokens for nothing")


@pytest.mark.promise("R18")
@pytest.mark.parametrize(("way", "streamed"), CASES, ids=str)
def test_when_the_client_leaves_the_slot_is_free_within_one_step(
    stepwise: LiveService, model: GatedModel, way: Way, *, streamed: bool
) -> None:
    with begin(stepwise, model, way, streamed=streamed) as call:
        call.leave()
        assert_freed(stepwise, model, way, "cancelled", streamed=streamed)


@pytest.mark.promise("R17")
@pytest.mark.parametrize("way", [GRPC, GRPC_STREAM, GRPC_MANY], ids=str)
def test_when_the_client_cancels_the_slot_is_free_within_one_step(
    stepwise: LiveService, model: GatedModel, way: Way
) -> None:
    with begin(stepwise, model, way, streamed=way in STREAMS) as call:
        call.cancel()
        assert_freed(stepwise, model, way, "cancelled", streamed=way in STREAMS)


@pytest.mark.promise("R16")
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_deadline_passes_in_the_queue_even_if_the_slots_are_blocked(
    gated: LiveService, model: GatedModel, way: Way
) -> None:
    with begin(gated, model, REST, streamed=False, timeout_seconds=2 * WAIT_SECONDS) as running:
        with open_call(gated, way, LONG_TEXT) as late:
            eventually(lambda: gated.metric("sequences_waiting") == 1)
            gated.leap(PASSED_SECONDS)
            assert late.failure().reason == "deadline_exceeded"
        model.gate.set()
        running.finish()
    eventually(lambda: gated.metric("sequences_waiting") == 0)
    assert gated.metric("wasted_tokens_total") == 0


def test_a_client_that_leaves_before_its_body_is_complete_costs_no_step(gated: LiveService, model: GatedModel) -> None:
    head = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gated.service.http_port), timeout=WAIT_SECONDS) as connection:
        connection.sendall(head + b'{"text"')
        eventually(lambda: gated.metric("inflight_requests") == 1)
    gated.settle()
    assert gated.metric("requests_total", outcome="cancelled") == 1
    assert model.steps == []


def test_the_deadline_counts_while_the_body_is_read(live: LiveService) -> None:
    """A client that never completes its request must not hold it open."""
    head = b"POST /v1/translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", live.service.http_port), timeout=WAIT_SECONDS) as connection:
        connection.sendall(head + b"x-request-timeout-ms: 50\r\ncontent-length: 9\r\n\r\n{")
        assert connection.recv(1000).startswith(b"HTTP/1.1 504 ")


@pytest.mark.parametrize("way", SINGLE_WAYS, ids=str)
def test_a_full_queue_rejects_at_once_with_a_retry_delay(gated: LiveService, model: GatedModel, way: Way) -> None:
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        accepted = pool.submit(gated.post, {"text": [LONG_TEXT, LONG_TEXT]})
        assert model.stepping.wait(WAIT_SECONDS)
        with open_call(gated, way, LONG_TEXT) as rejected:
            failure = rejected.failure()
        assert (failure.reason, failure.retry_seconds) == ("queue_full", 1)
        model.gate.set()
        assert accepted.result().status_code == 200
    assert gated.metric("requests_total", protocol=way.protocol, method=way.method, outcome="queue_full") == 1


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_invalid_text_is_rejected_by_field(live: LiveService, way: Way) -> None:
    with open_call(live, way, " ") as call:
        failure = call.failure()
    assert (failure.reason, failure.field) == ("invalid", "text[0]")
    assert failure.request_id


@pytest.mark.parametrize(("way", "streamed"), CASES, ids=str)
def test_a_failing_model_ends_the_request_without_details(
    stepwise: LiveService, model: GatedModel, way: Way, *, streamed: bool
) -> None:
    with capture_logs(), begin(stepwise, model, way, streamed=streamed) as call:
        model.decode_error = RuntimeError(INSIDE)
        model.gate.set()
        failure = call.failure()
    assert failure.reason == "internal"
    assert INSIDE not in failure.detail
    stepwise.settle()
    assert stepwise.metric("requests_total", protocol=way.protocol, method=way.method, outcome="internal") == 1


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_an_unexpected_error_is_logged_by_request_id_and_reveals_no_details(
    live: LiveService, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    """In a stream it comes after the first event."""

    def fail(*_: Any) -> None:
        raise ZeroDivisionError(INSIDE)

    monkeypatch.setattr(Translator, "_respond", fail)
    with capture_logs() as logs, open_call(live, way, LONG_TEXT) as call:
        failure = call.failure()
    assert failure.reason == "internal"
    assert INSIDE not in failure.detail
    assert [log["request_id"] for log in logs if log["event"] == "unexpected_error"] == [failure.request_id]


@pytest.mark.promise("R22")
@pytest.mark.parametrize("way", STREAMS, ids=str)
def test_a_stream_is_finished_before_the_server_stops(stepwise: LiveService, model: GatedModel, way: Way) -> None:
    with begin(stepwise, model, way, streamed=True) as call:
        stepwise.stop()
        eventually(lambda: stepwise.health() == "NOT_SERVING")
        model.on_step = lambda: None
        model.gate.set()
        call.finish()
    stepwise.join()
