"""The gRPC server over real connections: responses, metadata, cancellation, health and reflection."""

import asyncio
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.errors import QueueFullError
from dragoman.serve.grpc.call import abort, answer
from dragoman.serve.observability.logs import RecordedRequest
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, GatedModel, LiveService, run_service

SERVICE = "dragoman.v1.TranslationService"
GOOD = TranslateRequest(text=["alpha beta."])


def status_of(call: Any) -> grpc.StatusCode:
    with pytest.raises(grpc.RpcError) as raised:
        call()
    error: Any = raised.value
    code: grpc.StatusCode = error.code()
    return code


@pytest.mark.parametrize("message", [GOOD, TranslateRequest()], ids=["ok", "invalid"])
def test_the_request_id_of_the_client_is_returned_or_a_new_one(live: LiveService, message: TranslateRequest) -> None:
    def request_id(*metadata: tuple[str, str]) -> str:
        with live.grpc_channel() as channel:
            method: Any = channel.unary_unary(TRANSLATE_METHOD, request_serializer=TranslateRequest.SerializeToString)
            trailers = method.future(message, metadata=metadata, timeout=WAIT_SECONDS).trailing_metadata()
        return str(dict(trailers)["x-request-id"])

    assert request_id(("x-request-id", "id-1")) == "id-1"
    assert len(request_id()) == 32


@dataclass
class FakeContext:
    """A call whose remaining times come from a list."""

    remaining_seconds: list[float | None]

    def time_remaining(self) -> float | None:
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
        with RecordedRequest(gated.service.metrics, "grpc", "translate", "id") as record:
            context: Any = FakeContext(remaining_seconds)
            answering = asyncio.create_task(answer(message, gated.service._grpc._answer_texts, context, record))
            await asyncio.to_thread(model.stepping.wait, WAIT_SECONDS)
            answering.cancel()
            await answering

    with pytest.raises(CancelledError):
        asyncio.run_coroutine_threadsafe(cancel(), gated.loop).result(WAIT_SECONDS)
    assert gated.metric("requests_total", outcome=outcome) == 1


class GoneContext(FakeContext):
    """A call of a disconnected client: gRPC accepts no message and no status."""

    async def write(self, _: object) -> None:
        raise grpc.aio.UsageError("the connection is closed")

    async def abort(self, *_: object) -> None:
        raise grpc.aio.InternalError("Failed execute_batch")

    def invocation_metadata(self) -> tuple[()]:
        return ()


def test_a_failed_write_counts_as_cancelled(gated: LiveService) -> None:
    """The write may fail before gRPC cancels the call."""

    async def stream() -> None:
        handler = gated.service._grpc._stream_handler()
        context: Any = GoneContext([None, None])
        await handler.unary_stream(TranslateRequest(text=["alpha"]), context)

    with pytest.raises(CancelledError):
        asyncio.run_coroutine_threadsafe(stream(), gated.loop).result(WAIT_SECONDS)
    gated.settle()
    assert gated.metric("requests_total", method="translate_stream", outcome="cancelled") == 1
    assert gated.metric("requests_total", outcome="internal") == 0


def test_a_disconnected_client_gets_no_status() -> None:
    context: Any = GoneContext([])
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(abort(context, QueueFullError("full"), ()))


def test_an_expired_deadline_is_rejected(gated: LiveService, model: GatedModel) -> None:
    """The gate is closed: gRPC rounds the sent deadline up, so that an idle server may respond before it passes."""
    model.gate.clear()
    assert gated.call_error(GOOD, timeout=0).code() is grpc.StatusCode.DEADLINE_EXCEEDED
    model.gate.set()
    gated.settle()


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
    assert status_of(lambda: live.health(f"{SERVICE}/none")) is grpc.StatusCode.NOT_FOUND


def test_reflection_lists_the_services(live: LiveService) -> None:
    with live.grpc_channel() as channel:
        database: Any = ProtoReflectionDescriptorDatabase(channel)
        assert set(database.get_services()) >= {SERVICE, "grpc.health.v1.Health"}
        assert database.FindFileContainingSymbol(SERVICE).package == "dragoman.v1"
