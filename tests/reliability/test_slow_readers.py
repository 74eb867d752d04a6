"""A client that stays connected but does not read its stream cannot occupy the service forever."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from protos.translation_pb2 import TranslateRequest, TranslateStreamResponse
from serve.api.http_limits import HttpLimits
from tests.support.live import LONG_TEXT, STREAM_METHOD, LiveService, eventually, run_service
from tests.support.raw_http import SMALL_BUFFER_BYTES, open_narrow_port

TEXTS = [LONG_TEXT] * 64


@pytest.fixture
def live(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveService]:
    """A service with a short timeout for slow readers."""
    monkeypatch.setattr("serve.api.grpc_call.SEND_TIMEOUT_SECONDS", 0.5)
    monkeypatch.setattr("serve.service.open_port", open_narrow_port)
    limits = HttpLimits(send_seconds=0.5, sweep_seconds=0.1)
    with run_service(bundle_path, http_limits=limits, queue_limit=64) as service:
        yield service


@contextmanager
def grpc_stream(live: LiveService) -> Iterator[None]:
    """Opens a stream and reads only its first event."""
    options = [("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0)]
    with grpc.insecure_channel(live.grpc_target, options) as channel:
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
