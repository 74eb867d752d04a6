"""The gRPC server over real connections: responses, deadlines, cancellation, metadata, health and reflection."""

import asyncio
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from structlog.testing import capture_logs

from model.tokenizer.tokenizer import Tokenizer
from protos.translation_pb2 import FINISH_REASON_EOS, FINISH_REASON_LENGTH, SearchOptions, TranslateRequest
from serve.api.grpc_call import answer
from serve.observability.logs import record_request
from serve.search.hypothesis import FinishReason
from tests.support.fakes import EOS_ID, translate
from tests.support.live import (
    LONG_TEXT,
    MAX_TARGET_TOKENS,
    TRANSLATE_METHOD,
    WAIT_SECONDS,
    GatedModel,
    LiveService,
    eventually,
    run_service,
)

SERVICE = "dragoman.v1.TranslationService"
REASONS = {FinishReason.EOS: FINISH_REASON_EOS, FinishReason.LENGTH: FINISH_REASON_LENGTH}
GOOD = TranslateRequest(text=["alpha beta."])


def call_with_metadata(live: LiveService, message: TranslateRequest, metadata: Any = None) -> dict[str, str]:
    """Sends a request and returns the trailing metadata of its response or error."""
    with live.grpc_channel() as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD, request_serializer=TranslateRequest.SerializeToString)
        call = method.future(message, metadata=metadata, timeout=WAIT_SECONDS)
        return dict(call.trailing_metadata())


def test_every_text_is_answered_in_order(live: LiveService, tokenizer: Tokenizer) -> None:
    texts = ["alpha beta.", LONG_TEXT, "one two three."]
    response = live.call(TranslateRequest(text=texts, source_language="en", target_language="de"))
    for text, translation in zip(texts, response.translations, strict=True):
        source_ids = (*tokenizer.encode(text), EOS_ID)
        target_ids, score, reason = translate(source_ids, MAX_TARGET_TOKENS)
        assert translation.text == tokenizer.decode(target_ids)
        assert translation.score == pytest.approx(score)
        assert translation.finish_reason == REASONS[reason]
        assert (translation.source_tokens, translation.target_tokens) == (len(source_ids), len(target_ids))
    assert 0 < response.timings.inference_seconds < response.timings.total_seconds


def test_a_limited_translation_has_the_finish_reason_length(live: LiveService) -> None:
    options = SearchOptions(max_target_tokens=2)
    (translation,) = live.call(TranslateRequest(text=[LONG_TEXT], options=options)).translations
    assert (translation.target_tokens, translation.finish_reason) == (2, FINISH_REASON_LENGTH)


def test_the_request_id_of_the_client_is_returned(live: LiveService) -> None:
    assert call_with_metadata(live, GOOD, [("x-request-id", "id-1")])["x-request-id"] == "id-1"
    assert call_with_metadata(live, TranslateRequest(), [("x-request-id", "id-2")])["x-request-id"] == "id-2"


def test_a_request_without_an_id_gets_one(live: LiveService) -> None:
    assert len(call_with_metadata(live, GOOD)["x-request-id"]) == 32


def test_a_full_queue_rejects_at_once_with_a_retry_delay(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with ThreadPoolExecutor() as pool:
        accepted = pool.submit(gated.call, TranslateRequest(text=[LONG_TEXT, LONG_TEXT]))
        assert model.stepping.wait(WAIT_SECONDS)
        error = gated.call_error(GOOD)
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert call_with_metadata(gated, GOOD)["grpc-retry-pushback-ms"] == "1000"
        model.gate.set()
        assert len(accepted.result().translations) == 2
    gated.settle()
    assert gated.metric("requests_total", outcome="queue_full") == 2


@pytest.mark.promise("R17")
def test_when_the_deadline_passes_the_slot_is_free_within_one_step(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    error = gated.call_error(TranslateRequest(text=[LONG_TEXT]), timeout=1.0)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    gated.settle()
    assert gated.metric("requests_total", protocol="grpc", outcome="deadline_exceeded") == 1
    model.gate.set()
    eventually(lambda: gated.metric("sequences_running") == 0)
    assert len(model.steps) == 1


@dataclass
class FakeContext:
    """A call whose remaining times come from a list."""

    remaining_seconds: list[float | None]

    def time_remaining(self) -> float | None:
        """Returns the next time of the list."""
        return self.remaining_seconds.pop(0)


@pytest.mark.parametrize(
    ("remaining_seconds", "outcome"),
    [([1.01, 0.008], "deadline_exceeded"), ([1.01, 0.5], "cancelled"), ([None, None], "cancelled")],
)
def test_a_cancellation_is_classified_by_the_remaining_time(
    gated: LiveService, model: GatedModel, remaining_seconds: list[float | None], outcome: str
) -> None:
    """The server's deadline passes after the client's, because gRPC rounds the sent deadline up."""
    model.gate.clear()
    message = TranslateRequest(text=[LONG_TEXT])

    async def cancel() -> None:
        with record_request(gated.service.metrics, "grpc", "translate", "id") as record:
            context: Any = FakeContext(remaining_seconds)
            answering = asyncio.create_task(answer(message, gated.service._grpc._translate, context, record))
            await asyncio.to_thread(model.stepping.wait, WAIT_SECONDS)
            answering.cancel()
            await answering

    with pytest.raises(CancelledError):
        asyncio.run_coroutine_threadsafe(cancel(), gated.loop).result(WAIT_SECONDS)
    assert gated.metric("requests_total", outcome=outcome) == 1


def test_a_failed_write_counts_as_cancelled(gated: LiveService) -> None:
    """The write may fail before gRPC cancels the call."""

    class GoneContext(FakeContext):
        async def write(self, _: object) -> None:
            raise grpc.aio.UsageError("the connection is closed")

        def invocation_metadata(self) -> tuple[()]:
            return ()

    async def stream() -> None:
        handler = gated.service._grpc._handlers["TranslateStream"]
        context: Any = GoneContext([None, None])
        await handler.unary_stream(TranslateRequest(text=["alpha"]), context)

    with pytest.raises(CancelledError):
        asyncio.run_coroutine_threadsafe(stream(), gated.loop).result(WAIT_SECONDS)
    gated.settle()
    assert gated.metric("requests_total", method="translate_stream", outcome="cancelled") == 1
    assert gated.metric("requests_total", outcome="internal") == 0


def test_an_expired_deadline_is_refused(gated: LiveService, model: GatedModel) -> None:
    """The gate is closed: gRPC rounds the sent deadline up, so that an idle server may respond before it passes."""
    model.gate.clear()
    assert gated.call_error(GOOD, timeout=0).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    model.gate.set()
    gated.settle()


@pytest.mark.promise("R17")
def test_when_the_client_cancels_the_slot_is_free_within_one_step(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    with gated.grpc_channel() as channel:
        method: Any = channel.unary_unary(TRANSLATE_METHOD, request_serializer=TranslateRequest.SerializeToString)
        call = method.future(TranslateRequest(text=[LONG_TEXT]), timeout=WAIT_SECONDS)
        assert model.stepping.wait(WAIT_SECONDS)
        call.cancel()
        gated.settle()
    assert gated.metric("requests_total", protocol="grpc", outcome="cancelled") == 1
    model.gate.set()
    eventually(lambda: gated.metric("sequences_running") == 0)
    assert gated.metric("sequences_finished_total", reason="cancelled") == 1
    assert len(model.steps) == 1


@pytest.mark.promise("R18")
def test_when_the_connection_breaks_the_slot_is_free_within_one_step(gated: LiveService, model: GatedModel) -> None:
    model.gate.clear()
    channel = gated.grpc_channel()
    method: Any = channel.unary_unary(TRANSLATE_METHOD, request_serializer=TranslateRequest.SerializeToString)
    call = method.future(TranslateRequest(text=[LONG_TEXT]))
    assert model.stepping.wait(WAIT_SECONDS)
    channel.close()
    gated.settle()
    assert gated.metric("requests_total", outcome="cancelled") == 1
    model.gate.set()
    eventually(lambda: gated.metric("sequences_running") == 0)
    assert len(model.steps) == 1
    assert call.done()


def test_an_unexpected_error_reveals_no_details(live: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_request: Any) -> None:
        raise ZeroDivisionError("a detail of the inside")

    monkeypatch.setattr(live.pipeline.translator, "translate", fail)
    with capture_logs() as logs:
        error = live.call_error(GOOD)
    assert error.code() is grpc.StatusCode.INTERNAL
    assert str(error.details()).startswith("internal error, logged with request id ")
    assert [log["exc_info"] for log in logs if log["event"] == "unexpected_error"] == [True]


@pytest.mark.parametrize("service", ["", SERVICE])
def test_the_health_check_answers_for_all_and_for_the_service(live: LiveService, service: str) -> None:
    assert live.health(service) == "SERVING"


def test_health_watchers_learn_of_a_shutdown_before_requests_fail(bundle_path: Path) -> None:
    """Health of all, of the service and of each model, so that clients can switch before requests fail."""
    with run_service(bundle_path, lame_duck_seconds=WAIT_SECONDS) as live, live.grpc_channel() as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        names = ("", SERVICE, f"{SERVICE}/fake")
        watches = [stub.Watch(health_pb2.HealthCheckRequest(service=name), timeout=WAIT_SECONDS) for name in names]
        assert [next(watch).status for watch in watches] == [health_pb2.HealthCheckResponse.SERVING] * 3
        live.stop()
        assert [next(watch).status for watch in watches] == [health_pb2.HealthCheckResponse.NOT_SERVING] * 3
        assert live.call(GOOD).translations
        live.abandon()


def test_the_health_of_an_unknown_service_is_not_found(live: LiveService) -> None:
    with pytest.raises(grpc.RpcError) as raised:
        live.health(f"{SERVICE}/none")
    error: Any = raised.value
    assert error.code() is grpc.StatusCode.NOT_FOUND


def test_reflection_lists_the_services(live: LiveService) -> None:
    with live.grpc_channel() as channel:
        database: Any = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) >= {SERVICE, "grpc.health.v1.Health"}
        file = database.FindFileContainingSymbol(SERVICE)
        assert file.package == "dragoman.v1"


def test_an_unknown_method_is_unimplemented(live: LiveService) -> None:
    with live.grpc_channel() as channel:
        method: Any = channel.unary_unary(f"/{SERVICE}/Transcribe")
        with pytest.raises(grpc.RpcError) as raised:
            method(b"", timeout=WAIT_SECONDS)
    error: Any = raised.value
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
