"""Streams of requests over real connections: what is read when, what is answered, and what becomes of the rest."""

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


def test_a_stream_that_lasted_long_enough_answers_what_was_read(bundle_path: Path) -> None:
    """Its connection is about to end, and nothing that was accepted may end with it."""
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
        assert "this stream has lasted long enough" in stream.call.details()
        live.settle()
        assert live.metric("requests_total", method="translate_many", outcome="ok") == 2


def test_the_load_generator_sends_what_a_stream_left_on_the_next_one(bundle_path: Path) -> None:
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
        # A stream is over for the server a moment after its client has left.
        eventually(lambda: len([log for log in logs if log["event"] == "stream"]) > 1)


def reason_of(answer: TranslateManyResponse) -> str:
    """Returns why a request failed."""
    assert answer.WhichOneof("outcome") == "error"
    info = ErrorInfo()
    assert answer.error.details[0].Unpack(info)
    return info.reason


def test_every_request_is_answered_as_if_it_had_come_alone(live: LiveService) -> None:
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


def test_an_answer_comes_while_the_stream_is_open(live: LiveService) -> None:
    with converse(live) as many:
        for name in ("one", "two"):
            many.send(name, "alpha beta.")
            assert many.receive().id == name


@pytest.fixture
def two_slots(bundle_path: Path) -> Iterator[tuple[LiveService, GatedModel, GatedModel]]:
    """A service with two engines of one slot, each with a gate, and a queue of one; a stream may have three texts."""
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


def test_the_fault_of_one_request_is_its_answer_and_no_more(live: LiveService) -> None:
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
    assert answers["blank"].error.message == "text[1]: blank, expected a sentence"
    assert answers["blank"].error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    violation = BadRequest()
    assert answers["blank"].error.details[1].Unpack(violation)
    assert violation.field_violations[0].field == "text[1]"
    assert reason_of(answers["model"]) == "MODEL_NOT_FOUND"
    assert answers["late"].error.message == "timeout_seconds: -1.0, expected a finite number above 0"
    assert {reason_of(answers[name]) for name in ("nothing", "late", "later")} == {"INVALID"}


def test_a_request_that_is_no_message_is_answered_by_its_id(live: LiveService) -> None:
    """And in the words that Translate has for it."""
    broken = b"\x0a\x03id1" + b"\x12\x07\x0a\x02ok\x0a\x01\xff"
    with converse(live) as many:
        many.send_bytes(broken)
        many.send_bytes(b"\xff")
        many.send("good", "alpha beta.")
        answers = many.rest()
    assert answers["id1"].error.message == "text[1]: not valid UTF-8 at byte 0"
    assert answers[""].error.message == "request: not a dragoman.v1.TranslateManyRequest message"
    assert answers["good"].HasField("response")


def test_an_unexpected_error_ends_one_request_and_gives_no_detail_away(
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


def test_a_stream_is_read_no_further_than_it_may_be_unanswered(
    two_slots: tuple[LiveService, GatedModel, GatedModel],
) -> None:
    live, *models = two_slots
    for model in models:
        model.gate.clear()
    with converse(live) as many:
        for number in range(9):
            many.send(str(number), LONG_TEXT)
        eventually(lambda: live.metric("inflight_requests") == 3)
        # Whatever else comes is answered meanwhile: the event loop has had every occasion to read on.
        assert live.get("/healthz").status_code == 200
        assert live.metric("inflight_requests") == 3
        for model in models:
            model.gate.set()
        assert len(many.rest()) == 9
    live.settle()
    assert live.metric("requests_total", method="translate_many", outcome="ok") == 9


def test_a_stream_is_never_refused_for_want_of_room(gated: LiveService, model: GatedModel) -> None:
    """There is one slot, and one place to wait."""
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


def test_a_stream_leaves_room_for_others(bundle_path: Path) -> None:
    """Half of the queue stays free, however much the stream holds."""
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


def test_a_stream_that_waits_for_room_does_not_hold_up_another_one(bundle_path: Path) -> None:
    """What one stream leaves free is there for the first request of the other, and no more of that one either."""
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


def test_the_requests_of_a_stream_take_turns_with_others_as_one(bundle_path: Path) -> None:
    """A lone request that comes last starts before all but one of those that the stream has waiting."""
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


def test_the_deadline_of_the_call_is_that_of_its_requests(gated: LiveService, model: GatedModel) -> None:
    """Also of one that waits for room."""
    model.gate.clear()
    with converse(gated, timeout=0.3) as many:
        for number in range(3):
            many.send(str(number), LONG_TEXT)
        assert many.failure() is grpc.StatusCode.DEADLINE_EXCEEDED
    gated.settle()
    count = gated.metric("requests_total", method="translate_many")
    assert count == gated.metric("requests_total", method="translate_many", outcome="deadline_exceeded") > 0


def test_a_request_that_is_too_late_is_answered_and_the_stream_goes_on(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with converse(gated) as many:
        many.send("held", LONG_TEXT)
        many.send("late", LONG_TEXT, timeout_seconds=0.05)
        late = many.receive()
        assert (late.id, reason_of(late)) == ("late", "DEADLINE_EXCEEDED")
        model.gate.set()
        assert many.rest().keys() == {"held"}
    assert gated.metric("requests_total", method="translate_many", outcome="deadline_exceeded") == 1


def test_a_request_that_finds_no_room_in_time_is_too_late(bundle_path: Path) -> None:
    model = GatedModel(1)
    with run_service(bundle_path, [model], queue_limit=0, stream_unanswered_texts=5) as live:
        model.stepping.clear()
        model.gate.clear()
        with converse(live) as many:
            many.send("held", LONG_TEXT)
            assert model.stepping.wait(WAIT_SECONDS)
            many.send("late", LONG_TEXT, timeout_seconds=0.05)
            assert many.receive().error.message == "the deadline passed before there was room"
            model.gate.set()
            assert many.rest().keys() == {"held"}


def test_a_server_that_drains_answers_what_it_read_and_says_that_it_goes(gated: LiveService, model: GatedModel) -> None:
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


def test_a_stream_without_requests_does_not_delay_the_end(live: LiveService) -> None:
    with converse(live) as many:
        many.send("one", "alpha")
        assert many.receive().id == "one"
        live.stop()
        assert many.failure() is grpc.StatusCode.UNAVAILABLE
    live.join()


def test_what_is_not_done_when_the_drain_time_is_over_has_no_answer(bundle_path: Path) -> None:
    model = GatedModel(1)
    with run_service(bundle_path, [model], drain_seconds=0.05) as live, converse(live) as many, capture_logs() as logs:
        model.stepping.clear()
        model.gate.clear()
        many.send("held", LONG_TEXT)
        assert model.stepping.wait(WAIT_SECONDS)
        live.stop()
        eventually(lambda: "drain time is over" in [log["event"] for log in logs])
        # An engine that does not know yet that it is to stop would finish the translation.
        (served,) = live.service.models
        eventually(lambda: all(engine._stopping for engine in served.pipeline._engines))
        model.gate.set()
        with pytest.raises(grpc.RpcError):
            many.receive()
        assert many.call.code() is grpc.StatusCode.UNAVAILABLE
    assert live.metric("requests_total", method="translate_many", outcome="draining") == 1


def test_a_server_that_is_not_ready_takes_no_stream(bundle_path: Path) -> None:
    model = GatedModel(1)
    model.gate.clear()
    with run_service(bundle_path, [model], wait_ready=False) as live:
        with converse(live) as many:
            assert many.failure() is grpc.StatusCode.UNAVAILABLE
            assert many.call.details() == "warming up"
        live.settle()
        assert live.metric("requests_total", method="translate_many", outcome="not_ready") == 1
        model.gate.set()


def test_the_requests_of_a_stream_have_ids_of_their_own_in_the_log(live: LiveService) -> None:
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
