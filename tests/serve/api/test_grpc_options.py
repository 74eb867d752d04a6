"""gRPC channel options, observed by a client that writes raw HTTP/2 frames (RFC 9113)."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from protos.translation_pb2 import TranslateRequest
from serve.api.server import channel_options
from serve.settings import ServeSettings
from tests.support.live import WAIT_SECONDS, LiveService, run_service

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GO_AWAY = 4, 6, 7
ACKNOWLEDGED = 1
MAX_CONCURRENT_STREAMS = 3
ENHANCE_YOUR_CALM = 11


def frame(kind: int, payload: bytes = b"", flags: int = 0) -> bytes:
    """Returns a frame of stream 0, the connection itself."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + bytes(4) + payload


@contextmanager
def connect(live: LiveService) -> Iterator[socket.socket]:
    """Opens a connection that sends no requests and no acknowledgments."""
    with socket.create_connection(("127.0.0.1", live.service.grpc_port), WAIT_SECONDS) as connection:
        connection.sendall(PREFACE + frame(SETTINGS))
        yield connection


def frames(connection: socket.socket) -> Iterator[tuple[int, int, bytes]]:
    """Yields kind, flags and payload of each frame until the server closes the connection."""
    with connection.makefile("rb") as stream:
        while header := stream.read(9):
            yield header[3], header[4], stream.read(int.from_bytes(header[:3], "big"))


def test_a_connection_has_a_maximum_age(bundle_path: Path) -> None:
    """GOAWAY arrives early enough that no call fails."""
    ages: dict[str, Any] = {"grpc_max_connection_age_seconds": 0.1, "grpc_max_connection_age_grace_seconds": 5}
    with run_service(bundle_path, **ages) as live:
        with connect(live) as connection:
            farewell = next(payload for kind, _, payload in frames(connection) if kind == GO_AWAY)
            assert struct.unpack(">I", farewell[4:8]) == (0,)
            assert farewell[8:] == b"max_age"
        with live.grpc_channel() as channel:
            method: Any = channel.unary_unary("/dragoman.v1.TranslationService/Translate")
            for _ in range(40):
                assert method(TranslateRequest(text=["alpha"]).SerializeToString(), timeout=WAIT_SECONDS)


def test_a_connection_without_ping_acknowledgments_is_closed(bundle_path: Path) -> None:
    quick: dict[str, Any] = {"grpc_keepalive_seconds": 0.1, "grpc_keepalive_timeout_seconds": 0.1}
    with run_service(bundle_path, **quick) as live, connect(live) as connection:
        kinds = [kind for kind, flags, _ in frames(connection) if not flags & ACKNOWLEDGED]
    assert PING in kinds


def test_a_client_that_pings_too_often_is_disconnected(bundle_path: Path) -> None:
    with run_service(bundle_path, grpc_min_ping_interval_seconds=60) as live, connect(live) as connection:
        connection.sendall(frame(PING, bytes(8)) * 9)
        farewell = next(payload for kind, _, payload in frames(connection) if kind == GO_AWAY)
    assert struct.unpack(">I", farewell[4:8]) == (ENHANCE_YOUR_CALM,)
    assert farewell[8:] == b"too_many_pings"


def test_concurrent_calls_of_a_connection_are_limited(bundle_path: Path) -> None:
    with run_service(bundle_path, grpc_max_calls=7) as live, connect(live) as connection:
        announced = next(payload for kind, _, payload in frames(connection) if kind == SETTINGS)
    values = dict(struct.iter_unpack(">HI", announced))
    assert values[MAX_CONCURRENT_STREAMS] == 7


@pytest.mark.parametrize("age", ["inf", 1e9])
def test_infinite_durations_fit_the_channel_options(age: object) -> None:
    options = dict(channel_options(ServeSettings.model_validate({"grpc_max_connection_age_seconds": age})))
    assert options.get("grpc.max_connection_age_ms", 2**31 - 1) == 2**31 - 1


def test_by_default_a_connection_lasts_five_minutes_and_its_calls_half_a_minute_longer() -> None:
    options = dict(channel_options(ServeSettings()))
    assert options["grpc.max_connection_age_ms"] == 300_000
    assert options["grpc.max_connection_age_grace_ms"] == 360_000
