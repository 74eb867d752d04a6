"""A client that stays connected but does not read its stream cannot occupy the service forever."""

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from dragoman.protos.inference_pb2 import ModelInferRequest
from dragoman.protos.translation_pb2 import TranslateManyRequest, TranslateRequest, TranslateStreamResponse
from dragoman.serve.http.limits import HttpLimits
from tests.support.conversation import MANY_METHOD
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import STREAM_METHOD, WAIT_SECONDS, LiveService, eventually, run_service
from tests.support.raw_http import SMALL_BUFFER_BYTES, open_narrow_port

SEND_SECONDS = 0.5
TEXTS = [LONG_TEXT] * 64
# Larger than what a client takes unread.
LARGE = "x" * 500_000
# Options of a channel that takes little unread.
NARROW = [("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0)]


@pytest.fixture
def live(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveService]:
    """A service with a short timeout for slow readers."""
    monkeypatch.setattr("dragoman.serve.grpc.call.SEND_TIMEOUT_SECONDS", SEND_SECONDS)
    monkeypatch.setattr("dragoman.serve.service.open_port", open_narrow_port)
    limits = HttpLimits(send_seconds=SEND_SECONDS, sweep_seconds=0.1)
    with run_service(bundle_path, http_limits=limits, queue_limit=64) as service:
        yield service


@contextmanager
def grpc_stream(live: LiveService) -> Iterator[None]:
    """Opens a stream and reads only its first event."""
    with grpc.insecure_channel(live.grpc_target, NARROW) as channel:
        method: Any = channel.unary_stream(STREAM_METHOD, response_deserializer=TranslateStreamResponse.FromString)
        stream = method(TranslateRequest(text=TEXTS).SerializeToString())
        next(stream)
        yield


@contextmanager
def event_stream(live: LiveService) -> Iterator[None]:
    """Opens a stream of server-sent events and reads only its beginning."""
    body = json.dumps({"text": TEXTS}).encode()
    about = f"Host: test\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        client.connect(("127.0.0.1", live.service.http_port))
        client.sendall(f"POST /v1/translate/stream HTTP/1.1\r\n{about}\r\n\r\n".encode() + body)
        assert client.recv(12) == b"HTTP/1.1 200"
        yield


@pytest.mark.parametrize(("protocol", "stream"), [("grpc", grpc_stream), ("rest", event_stream)])
def test_an_unread_stream_ends_while_its_client_is_connected(live: LiveService, protocol: str, stream: Any) -> None:
    (served,) = live.service.models
    with stream(live):
        eventually(lambda: live.metric("requests_total", protocol=protocol, outcome="cancelled") == 1)
        live.settle()
        eventually(lambda: live.metric("sequences_running") == 0)
        assert not served.uses.count, "the model could be removed"
    assert live.post({"text": "alpha beta."}).status_code == 200


def inference_requests() -> Iterator[bytes]:
    """Yields requests of ModelStreamInfer with large answers."""
    tensor = ModelInferRequest.InferInputTensor(name="text_input", datatype="BYTES", shape=[1])
    tensor.contents.bytes_contents.append(b"alpha beta.")
    for number in range(8):
        yield ModelInferRequest(model_name="fake", id=f"{number}{LARGE}", inputs=[tensor]).SerializeToString()


def many_requests() -> Iterator[bytes]:
    for number in range(8):
        request = TranslateRequest(text=["alpha beta."])
        yield TranslateManyRequest(id=f"{number}{LARGE}", request=request).SerializeToString()


def text_request() -> Iterator[bytes]:
    yield TranslateRequest(text=TEXTS).SerializeToString()


@pytest.mark.parametrize(
    ("path", "requests", "status"),
    [
        (STREAM_METHOD, text_request, "CANCELLED"),
        (MANY_METHOD, many_requests, "UNAVAILABLE"),  # the client resends what has no answer
        ("/inference.GRPCInferenceService/ModelStreamInfer", inference_requests, "CANCELLED"),
    ],
)
def test_a_client_that_reads_again_after_the_limit_learns_that_its_stream_has_ended(
    live: LiveService, path: str, requests: Any, status: str
) -> None:
    """Never with OK, which would say that the answers are complete."""
    with grpc.insecure_channel(live.grpc_target, NARROW) as channel:
        method: Any = channel.stream_stream(path)
        call = method(requests(), timeout=WAIT_SECONDS)
        next(call)
        time.sleep(4 * SEND_SECONDS)
        with pytest.raises(grpc.RpcError, match=r"the client did not read the stream for 0\.5 seconds"):
            list(call)
        assert call.code().name == status
