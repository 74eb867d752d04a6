"""The ports: binding, idle connections, and gRPC channel options seen by raw HTTP/2 frames (RFC 9113)."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.grpc.options import MAX_STREAMS, channel_options
from dragoman.serve.http.limits import HttpLimits
from dragoman.serve.http.server import ListenError, open_port
from dragoman.serve.settings import ServeSettings
from tests.support.live import TRANSLATE_METHOD, WAIT_SECONDS, LiveService, run_service

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GO_AWAY = 4, 6, 7
ACKNOWLEDGED = 1
MAX_CONCURRENT_STREAMS = 3


def test_accepted_connections_of_a_free_port_have_tcp_nodelay() -> None:
    """Without TCP_NODELAY, each response took 40 ms longer: its second packet waited for a delayed acknowledgment."""
    with (
        open_port("127.0.0.1", 0) as listener,
        socket.create_connection(listener.getsockname()),
        listener.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_that_cannot_be_bound_is_named() -> None:
    """Because it is taken, belongs to another machine, or has a host without an address."""
    with open_port("127.0.0.1", 0) as listener:
        for host, port in (listener.getsockname(), ("192.0.2.1", 0), ("nowhere.invalid", 0)):
            with pytest.raises(ListenError, match=f"^{host}:{port}: "):
                open_port(host, port)


def test_idle_connections_are_kept_for_longer_than_load_balancers_keep_them() -> None:
    """Load balancers keep them for a minute, and do not resend a request that may have arrived."""
    assert HttpLimits().idle_seconds > 60


def frame(kind: int, payload: bytes = b"") -> bytes:
    """Returns a frame of stream 0, the connection itself."""
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload


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


def farewell(connection: socket.socket) -> tuple[int, bytes]:
    """Returns error code and reason of the frame that announces the end of the connection."""
    payload = next(payload for kind, _, payload in frames(connection) if kind == GO_AWAY)
    return struct.unpack(">I", payload[4:8])[0], payload[8:]


def test_a_connection_has_a_maximum_age(bundle_path: Path) -> None:
    """GOAWAY arrives early enough that no call fails."""
    ages: dict[str, Any] = {"grpc_max_connection_age_seconds": 0.1, "grpc_max_connection_age_grace_seconds": 5}
    with run_service(bundle_path, **ages) as live:
        with connect(live) as connection:
            assert farewell(connection) == (0, b"max_age")
        with live.grpc_channel() as channel:
            method: Any = channel.unary_unary(TRANSLATE_METHOD)
            for _ in range(40):
                assert method(TranslateRequest(text=["alpha"]).SerializeToString(), timeout=WAIT_SECONDS)


def test_a_connection_without_ping_acknowledgments_is_closed(bundle_path: Path) -> None:
    quick: dict[str, Any] = {"grpc_keepalive_seconds": 0.1, "grpc_keepalive_timeout_seconds": 0.1}
    with run_service(bundle_path, **quick) as live, connect(live) as connection:
        kinds = [kind for kind, flags, _ in frames(connection) if not flags & ACKNOWLEDGED]
    assert PING in kinds


def test_the_calls_of_a_connection_are_limited(bundle_path: Path) -> None:
    with run_service(bundle_path) as live, connect(live) as connection:
        announced = next(payload for kind, _, payload in frames(connection) if kind == SETTINGS)
    assert dict(struct.iter_unpack(">HI", announced))[MAX_CONCURRENT_STREAMS] == MAX_STREAMS


def test_a_client_may_start_far_more_calls_of_a_connection_than_run_at_once(bundle_path: Path) -> None:
    """A client starts its next call when it has an answer, often before the server has released the answered call."""
    with run_service(bundle_path) as live, live.grpc_channel() as channel:
        method: Any = channel.unary_unary("/dragoman.v1.TranslationService/ListModels")
        calls = [method.future(b"", timeout=WAIT_SECONDS) for _ in range(10 * MAX_STREAMS)]
        assert [call for call in calls if call.code() is not StatusCode.OK] == []


def test_frequent_pings_are_answered(bundle_path: Path) -> None:
    with run_service(bundle_path) as live, connect(live) as connection:
        connection.sendall(frame(PING, bytes(8)) * 9)
        answers = (flags for kind, flags, _ in frames(connection) if kind == PING)
        for _ in range(9):
            assert next(answers) == ACKNOWLEDGED
            connection.sendall(frame(PING, bytes(8)))


@pytest.mark.parametrize("age", ["inf", 1e9])
def test_infinite_durations_fit_the_channel_options(age: object) -> None:
    options = dict(channel_options(ServeSettings.model_validate({"grpc_max_connection_age_seconds": age})))
    assert options.get("grpc.max_connection_age_ms", 2**31 - 1) == 2**31 - 1


def test_by_default_a_connection_lasts_five_minutes_and_its_calls_half_a_minute_longer() -> None:
    options = dict(channel_options(ServeSettings()))
    assert options["grpc.max_connection_age_ms"] == 300_000
    assert options["grpc.max_connection_age_grace_ms"] == 360_000
