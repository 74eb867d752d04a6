"""`TranslateMany` over real connections: reading, responses, and requests without a response."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from structlog.testing import capture_logs

from loadtest.clients import OK, Targets, open_clients
from loadtest.scenario import LoadRequest
from protos.translation_pb2 import SearchOptions, TranslateManyRequest, TranslateManyResponse, TranslateRequest
from tests.support.conversation import converse
from tests.support.fakes import FakeModel
from tests.support.live import LONG_TEXT, WAIT_SECONDS, GatedModel, LiveService, eventually, run_service


def test_a_stream_at_its_maximum_duration_responds_to_read_requests(bundle_path: Path) -> None:
    """The connection is about to close; no accepted request may be lost."""
    model = GatedModel(2)
    ages: dict[str, Any] = {"grpc_max_connection_age_seconds": 0.5}
    with run_service(bundle_path, [model], **ages) as live, converse(live) as stream:
        model.gate.clear()
        for name in ("one", "two"):
            stream.send(name, LONG_TEXT)
        assert model.stepping.wait(WAIT_SECONDS)
        time.sleep(1.0)
        model.gate.set()
        assert {stream.receive().id, stream.receive().id} == {"one", "two"}
        assert stream.failure() is grpc.StatusCode.UNAVAILABLE
        assert "maximum duration" in stream.call.details()
        live.settle()
        assert live.metric("requests_total", method="translate_many", outcome="ok") == 2


def test_the_load_generator_resends_unanswered_requests_on_a_new_stream(bundle_path: Path) -> None:
    async def ask(target: str) -> list[str]:
        request = LoadRequest((LONG_TEXT,), "grpc-many", timeout_seconds=WAIT_SECONDS)
        async with open_clients(Targets(target, "", 1), {"grpc-many"}) as client:
            asking = []
            for _ in range(40):
                asking.append(asyncio.create_task(client.send(request)))
                await asyncio.sleep(0.02)
            return [answer.outcome for answer in await asyncio.gather(*asking)]

    ages: dict[str, Any] = {"grpc_max_connection_age_seconds": 0.3}
    with run_service(bundle_path, [GatedModel(4)], **ages) as live, capture_logs() as logs:
        assert asyncio.run(ask(live.grpc_target)) == [OK] * 40
        live.settle()
        assert live.metric("requests_total", method="translate_many", outcome="ok") == 40
        # The server notices the end of a stream a moment after the client has left.
        eventually(lambda: len([log for log in logs if log["event"] == "stream"]) > 1)


def reason_of(answer: TranslateManyResponse) -> str:
    """Returns the reason of a failed request."""
    assert answer.WhichOneof("outcome") == "error"
    info = ErrorInfo()
    assert answer.error.details[0].Unpack(info)
    return info.reason


def test_responses_equal_those_of_single_requests(live: LiveService) -> None:
    options = SearchOptions(beam_size=3, hypotheses=2)
    requests = {
        "one": TranslateRequest(text=["alpha beta."]),
        "two": TranslateRequest(text=[LONG_TEXT, "one two three."], options=SearchOptions(max_target_tokens=2)),
        "three": TranslateRequest(text=["house garden."], options=options, source_language="en"),
    }
    expected = {name: list(live.call(request).translations) for name, request in requests.items()}
    with converse(live) as many:
        for name, request in requests.items():
            many.send_bytes(TranslateManyRequest(id=name, request=request).SerializeToString())
        answers = many.rest()
    assert {name: list(answer.response.translations) for name, answer in answers.items()} == expected
    assert {answer.response.model for answer in answers.values()} == {"fake"}


def test_a_response_arrives_while_the_stream_is_open(live: LiveService) -> None:
    with converse(live) as many:
        for name in ("one", "two"):
            many.send(name, "alpha beta.")
            assert many.receive().id == name


@pytest.fixture
def two_slots(bundle_path: Path) -> Iterator[tuple[LiveService, GatedModel, GatedModel]]:
    """Two engines of one slot, each with a gate, and a queue of one; a stream may have three unanswered texts."""
    models = GatedModel(1), GatedModel(1)
    with run_service(bundle_path, models, queue_limit=1, stream_unanswered_texts=3) as service:
        yield service, *models


def test_a_short_text_overtakes_a_long_one(two_slots: tuple[LiveService, GatedModel, GatedModel]) -> None:
    live, *models = two_slots
    for model in models:
        model.stepping.clear()
        model.gate.clear()
    with converse(live) as many:
        many.send("held", LONG_TEXT)
        eventually(lambda: any(model.stepping.is_set() for model in models))
        holding, free = models if models[0].stepping.is_set() else models[::-1]
        free.gate.set()
        many.send("free", "alpha beta.")
        assert many.receive().id == "free"
        holding.gate.set()
        assert many.rest().keys() == {"held"}


def test_an_error_of_one_request_does_not_affect_others(live: LiveService) -> None:
    with converse(live) as many:
        many.send("good", "alpha beta.")
        many.send("blank", "fine", " ")
        many.send("nothing")
        many.send("model", "alpha", model="none")
        many.send("late", "alpha", timeout_seconds=-1.0)
        many.send("later", "alpha", timeout_seconds=float("nan"))
        many.send("too", "house garden.")
        answers = many.rest()
    assert {name for name, answer in answers.items() if answer.HasField("response")} == {"good", "too"}
    assert answers["blank"].error.message.startswith("text[1]: ")
    assert answers["blank"].error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    violation = BadRequest()
    assert answers["blank"].error.details[1].Unpack(violation)
    assert violation.field_violations[0].field == "text[1]"
    assert reason_of(answers["model"]) == "MODEL_NOT_FOUND"
    assert answers["late"].error.message.startswith("timeout_seconds: ")
    assert {reason_of(answers[name]) for name in ("nothing", "late", "later")} == {"INVALID"}


def test_a_malformed_request_gets_an_error_with_its_id(live: LiveService) -> None:
    """The message is the same as in Translate."""
    broken = b"\x0a\x03id1" + b"\x12\x07\x0a\x02ok\x0a\x01\xff"
    with converse(live) as many:
        many.send_bytes(broken)
        many.send_bytes(b"\xff")
        many.send("good", "alpha beta.")
        answers = many.rest()
    assert answers["id1"].error.message.startswith("text[1]: ")
    assert answers[""].error.message.startswith("request: ")
    assert answers["good"].HasField("response")


def test_an_unexpected_error_ends_one_request_and_reveals_no_details(
    live: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_request: Any) -> None:
        raise ZeroDivisionError("a detail of the inside")

    with converse(live) as many:
        with monkeypatch.context() as patch, capture_logs():
            patch.setattr(live.pipeline.translator, "translate", fail)
            many.send("bad", "alpha beta.")
            bad = many.receive()
        many.send("good", "alpha beta.")
        assert many.receive().HasField("response")
    assert reason_of(bad) == "INTERNAL"
    assert bad.error.message.startswith("internal error, logged with request id ")


def test_a_stream_is_read_up_to_the_limit_of_unanswered_texts(
    two_slots: tuple[LiveService, GatedModel, GatedModel],
) -> None:
    live, *models = two_slots
    for model in models:
        model.gate.clear()
    with converse(live) as many:
        for number in range(9):
            many.send(str(number), LONG_TEXT)
        eventually(lambda: live.metric("inflight_requests") == 3)
        # Other requests are served meanwhile, so the event loop has had time to read on.
        assert live.get("/healthz").status_code == 200
        assert live.metric("inflight_requests") == 3
        for model in models:
            model.gate.set()
        assert len(many.rest()) == 9
    live.settle()
    assert live.metric("requests_total", method="translate_many", outcome="ok") == 9


def test_a_stream_is_never_rejected_for_a_full_queue(gated: LiveService, model: GatedModel) -> None:
    """One slot and one place in the queue."""
    with converse(gated) as many:
        for number in range(30):
            many.send(str(number), "alpha beta.")
        answers = many.rest()
    assert len(answers) == 30
    assert all(answer.HasField("response") for answer in answers.values())
    gated.settle()
    assert gated.metric("requests_total", method="translate_many") == 30
    assert gated.metric("requests_total", method="translate_many", outcome="ok") == 30
    assert len(model.steps) >= 30


def test_a_stream_leaves_half_of_the_queue_free(bundle_path: Path) -> None:
    """Half of the queue stays free, whatever the stream holds."""
    model = GatedModel(1)
    with run_service(bundle_path, [model], queue_limit=4, stream_unanswered_texts=50) as live:
        model.gate.clear()
        with converse(live) as many:
            for number in range(50):
                many.send(str(number), LONG_TEXT)
            eventually(lambda: live.metric("inflight_requests") == 50)
            eventually(lambda: live.metric("sequences_waiting") == 2)
            with live.call_stream(TranslateRequest(text=["one two."])) as other:
                eventually(lambda: live.metric("sequences_waiting") == 3)
                model.gate.set()
                list(other)
            assert len(many.rest()) == 50


def test_a_waiting_stream_does_not_block_another(bundle_path: Path) -> None:
    """The free half admits the first request of another stream, but no more of that stream."""
    model = GatedModel(1)
    with run_service(bundle_path, [model], queue_limit=4, stream_unanswered_texts=50) as live:
        model.gate.clear()
        with converse(live) as first, converse(live) as second:
            for number in range(9):
                first.send(str(number), LONG_TEXT)
            eventually(lambda: live.metric("inflight_requests") == 9)
            eventually(lambda: live.metric("sequences_waiting") == 2)
            for number in range(9):
                second.send(str(number), LONG_TEXT)
            eventually(lambda: live.metric("inflight_requests") == 18)
            eventually(lambda: live.metric("sequences_waiting") == 3)
            model.gate.set()
            assert len(first.rest()) == len(second.rest()) == 9


def test_a_stream_has_the_fair_share_of_one_client(bundle_path: Path) -> None:
    """A single request that arrives last starts before all but one of the stream's queued requests."""
    model = GatedModel(1)
    with (
        run_service(bundle_path, [model], queue_limit=20, stream_unanswered_texts=9) as live,
        live.grpc_channel() as channel,
    ):
        model.gate.clear()
        with converse(live, metadata=(("x-request-id", "stream"),)) as many, capture_logs() as logs:
            for number in range(5):
                many.send(str(number), "alpha beta.")
            eventually(lambda: live.metric("sequences_waiting") == 4)
            method: Any = channel.unary_unary(
                "/dragoman.v1.TranslationService/Translate", request_serializer=TranslateRequest.SerializeToString
            )
            alone = method.future(TranslateRequest(text=["house."]), metadata=(("x-request-id", "alone"),))
            eventually(lambda: live.metric("sequences_waiting") == 5)
            model.gate.set()
            assert alone.result(WAIT_SECONDS)
            assert len(many.rest()) == 5
    order = [log["request_id"] for log in logs if log["event"] == "request"]
    assert order.index("alone") <= 2


def test_when_the_client_cancels_every_slot_is_free_within_one_step(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with converse(gated) as many:
        many.send("one", LONG_TEXT)
        many.send("two", LONG_TEXT)
        eventually(lambda: gated.metric("inflight_requests") == 2)
        assert model.stepping.wait(WAIT_SECONDS)
        many.call.cancel()
        gated.settle()
    assert gated.metric("requests_total", method="translate_many", outcome="cancelled") == 2
    model.gate.set()
    eventually(lambda: gated.metric("sequences_running") + gated.metric("sequences_waiting") == 0)
    assert len(model.steps) == 1


def test_when_the_connection_breaks_every_slot_is_free_within_one_step(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with converse(gated) as many:
        many.send("one", LONG_TEXT)
        assert model.stepping.wait(WAIT_SECONDS)
    gated.settle()
    model.gate.set()
    eventually(lambda: gated.metric("sequences_running") == 0)
    assert gated.metric("requests_total", method="translate_many", outcome="cancelled") == 1
    assert len(model.steps) == 1


def test_the_deadline_of_the_call_applies_to_its_requests(gated: LiveService, model: GatedModel) -> None:
    """The rule also holds for a request that waits for room."""
    model.gate.clear()
    with converse(gated, timeout=0.3) as many:
        for number in range(3):
            many.send(str(number), LONG_TEXT)
        assert many.failure() is grpc.StatusCode.DEADLINE_EXCEEDED
    gated.settle()
    count = gated.metric("requests_total", method="translate_many")
    assert count == gated.metric("requests_total", method="translate_many", outcome="deadline_exceeded") > 0


def test_a_late_request_gets_an_error_and_the_stream_continues(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with converse(gated) as many:
        many.send("held", LONG_TEXT)
        many.send("late", LONG_TEXT, timeout_seconds=0.05)
        late = many.receive()
        assert (late.id, reason_of(late)) == ("late", "DEADLINE_EXCEEDED")
        model.gate.set()
        assert many.rest().keys() == {"held"}
    assert gated.metric("requests_total", method="translate_many", outcome="deadline_exceeded") == 1


def test_a_request_without_room_until_its_deadline_fails(bundle_path: Path) -> None:
    model = GatedModel(1)
    with run_service(bundle_path, [model], queue_limit=0, stream_unanswered_texts=5) as live:
        model.stepping.clear()
        model.gate.clear()
        with converse(live) as many:
            many.send("held", LONG_TEXT)
            assert model.stepping.wait(WAIT_SECONDS)
            many.send("late", LONG_TEXT, timeout_seconds=0.05)
            assert many.receive().error.code == grpc.StatusCode.DEADLINE_EXCEEDED.value[0]
            model.gate.set()
            assert many.rest().keys() == {"held"}


def test_a_draining_server_responds_to_read_requests_and_ends_with_unavailable(
    gated: LiveService, model: GatedModel
) -> None:
    model.gate.clear()
    with converse(gated) as many:
        many.send("read", LONG_TEXT)
        assert model.stepping.wait(WAIT_SECONDS)
        gated.stop()
        eventually(gated.service._grpc._draining.is_set)
        model.gate.set()
        assert many.receive().HasField("response")
        assert many.failure() is grpc.StatusCode.UNAVAILABLE
        assert dict(many.call.trailing_metadata())["grpc-retry-pushback-ms"] == "1000"
    gated.join()
    assert gated.metric("requests_total", method="translate_many") == 1


def test_an_idle_stream_does_not_delay_the_shutdown(live: LiveService) -> None:
    with converse(live) as many:
        many.send("one", "alpha")
        assert many.receive().id == "one"
        live.stop()
        assert many.failure() is grpc.StatusCode.UNAVAILABLE
    live.join()


def test_requests_unfinished_at_the_drain_timeout_get_no_response(bundle_path: Path) -> None:
    model = GatedModel(1)
    with run_service(bundle_path, [model], drain_seconds=0.05) as live, converse(live) as many, capture_logs() as logs:
        model.stepping.clear()
        model.gate.clear()
        many.send("held", LONG_TEXT)
        assert model.stepping.wait(WAIT_SECONDS)
        live.stop()
        eventually(lambda: "drain_timed_out" in [log["event"] for log in logs])
        # An engine that is not stopping yet would finish the translation.
        (served,) = live.service.models
        eventually(lambda: all(engine._stopping for engine in served.pipeline._engines))
        model.gate.set()
        with pytest.raises(grpc.RpcError):
            many.receive()
        assert many.call.code() is grpc.StatusCode.UNAVAILABLE
    assert live.metric("requests_total", method="translate_many", outcome="draining") == 1


def test_a_server_that_is_not_ready_rejects_streams(bundle_path: Path) -> None:
    model = GatedModel(1)
    model.gate.clear()
    with run_service(bundle_path, [model], wait_ready=False) as live:
        with converse(live) as many:
            assert many.failure() is grpc.StatusCode.UNAVAILABLE
        live.settle()
        assert live.metric("requests_total", method="translate_many", outcome="not_ready") == 1
        model.gate.set()


def test_requests_of_a_stream_have_separate_ids_in_the_log(live: LiveService) -> None:
    with capture_logs() as logs, converse(live, metadata=(("x-request-id", "mine"),)) as many:
        many.send("a", "alpha")
        many.send("b", "beta")
        assert len(many.rest()) == 2
        assert dict(many.call.trailing_metadata())["x-request-id"] == "mine"
    assert {log["request_id"] for log in logs if log["event"] == "request"} == {"mine-1", "mine-2"}
    (stream,) = [log for log in logs if log["event"] == "stream"]
    assert (stream["request_id"], stream["requests"]) == ("mine", 2)


def test_one_stream_keeps_several_engines_busy(bundle_path: Path) -> None:
    models = FakeModel(2), FakeModel(2)
    with run_service(bundle_path, models) as live, converse(live) as many:
        for number in range(40):
            many.send(str(number), LONG_TEXT)
        assert len(many.rest()) == 40
    assert all(model.steps for model in models)
