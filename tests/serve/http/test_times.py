"""Everything over HTTP/1.1 that waits for a client has a limited time, over plain connections and over TLS.

The tests advance the clock of the server.
"""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.serve.edge.reader import RequestReader
from dragoman.serve.http.connection import Connection
from dragoman.serve.http.limits import HttpLimits, Wait
from tests.support.live import WAIT_SECONDS, LiveService, eventually
from tests.support.raw_http import JSON, SMALL_BUFFER_BYTES, Served, head, serve_narrow

LIMITS = HttpLimits()
PROBE = head("GET", "/healthz")
HOUR = "x-request-timeout-ms: 3600000"


@pytest.fixture(params=["plain", "tls"])
def timed(request: pytest.FixtureRequest, bundle_path: Path, tmp_path: Path) -> Iterator[Served]:
    """A service of one test, because its clock stays advanced."""
    yield from serve_narrow(bundle_path, tmp_path, request.param, LIMITS, leaping=True)


def connected(live: LiveService) -> list[Connection]:
    """Returns the connections whose handshakes are complete."""
    networks = live.service._http._connections._networks
    return [network for network in list(networks) if isinstance(network, Connection) and network._connected]


def ends(connection: Connection) -> bool:
    """Returns whether the connection reads no further request."""
    return connection.lingers or connection._pipeline._discards


def reason_to_close(connection: Connection) -> str:
    """Returns the reason to close a connection whose client sends nothing more."""
    return connection.clock.limit(connection._pipeline.part, first=connection._pipeline.first)[0]


def waits(live: LiveService, reason: str) -> bool:
    """Returns whether the server waits for a client, and closes its connection for this reason if it is late."""
    connections = live.service._http._connections
    if reason == "handshake":
        return len(connections) > len(connected(live))
    if reason == "send_timeout":
        return any(client.output.unsent_bytes for client in connected(live))
    serving = [client for client in connected(live) if client._pipeline.serving is not None]
    idle = [client for client in connected(live) if client._pipeline.serving is None and not ends(client)]
    reading = reason == "body_timeout" and bool(connections._waiting[Wait.BODY])
    return (reading and bool(serving)) or any(reason_to_close(item) == reason for item in idle)


def leap_until_closed(live: LiveService, reason: str, seconds: float) -> None:
    """Advances the clock beyond the limit of a wait until the server has closed a connection."""

    def is_closed() -> bool:
        return live.metric("http_connections_closed_total", reason=reason) == 1

    live.leap_until(is_closed, seconds + 1, lambda: waits(live, reason))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("drips", [False, True])
def test_a_header_has_a_limited_time(timed: Served, *, first: bool, drips: bool) -> None:
    """Also if it goes on byte by byte, and behind an earlier request."""
    client = timed.connect()
    if first:
        client.send(PROBE)
        assert client.answer().status == 200
    client.send(PROBE[:-2] + b"x-a: ")
    eventually(lambda: [item._pipeline.header_bytes > 0 for item in connected(timed.live)] == [True])
    if drips and timed.live.service.core.security.tls is None:
        live = timed.live
        client.drip(b"a", lambda: live.leap(LIMITS.header_seconds / 4, lambda: waits(live, "header_timeout")))
    leap_until_closed(timed.live, "header_timeout", LIMITS.header_seconds)
    answer = client.answer()
    assert (answer.status, answer.reason) == (408, "request_timeout")
    assert answer.headers["connection"] == "close"
    assert client.ended()


def test_a_connection_without_a_request_is_closed(timed: Served) -> None:
    """After a request it may be idle for another time. Empty lines are no requests."""
    silent, idle = timed.connect(), timed.connect()
    idle.send(PROBE)
    assert idle.answer().status == 200
    idle.send(b"\r\n")
    eventually(lambda: len(connected(timed.live)) == 2)
    leap_until_closed(timed.live, "header_timeout", LIMITS.header_seconds)
    assert silent.ended()
    leap_until_closed(timed.live, "idle_timeout", LIMITS.idle_seconds)
    assert idle.ended()


def test_a_tls_handshake_has_a_limited_time(timed: Served) -> None:
    if timed.live.service.core.security.tls is None:
        pytest.skip("without TLS")
    with socket.create_connection(("127.0.0.1", timed.live.service.http_port), WAIT_SECONDS) as connection:
        connection.sendall(b"\x16\x03\x01")
        leap_until_closed(timed.live, "handshake", LIMITS.header_seconds)
        assert connection.recv(1) == b""


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("drips", [False, True])
def test_a_body_has_a_limited_time_whatever_the_deadline(timed: Served, *, chunked: bool, drips: bool) -> None:
    client = timed.connect()
    length = "transfer-encoding: chunked" if chunked else "content-length: 100000"
    client.send(head("POST", "/v1/translate", JSON, HOUR, length))
    eventually(lambda: timed.live.metric("inflight_requests") == 1)
    if drips and timed.live.service.core.security.tls is None:
        piece = b"1\r\na\r\n" if chunked else b" "
        live = timed.live
        client.drip(piece, lambda: live.leap(LIMITS.body_seconds / 4, lambda: waits(live, "body_timeout")))
    leap_until_closed(timed.live, "body_timeout", LIMITS.body_seconds)
    answer = client.answer()
    assert (answer.status, answer.reason) == (408, "request_timeout")
    assert answer.headers["connection"] == "close"


def test_a_body_may_take_longer_while_it_keeps_the_rate(timed: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    extend, received = RequestReader._extend, list[int]()

    def note(reader: RequestReader, reading: Any, *times: float) -> None:
        extend(reader, reading, *times)
        received.append(len(reading.body))

    monkeypatch.setattr(RequestReader, "_extend", note)
    padding = b" " * (4 * int(LIMITS.body_seconds) * LIMITS.body_bytes_per_second)
    data = json.dumps({"text": "alpha."}).encode()
    client = timed.connect()
    client.send(head("POST", "/v1/translate", JSON, HOUR, f"content-length: {len(padding) + len(data)}") + padding)
    eventually(lambda: received[-1:] == [len(padding)])
    timed.live.leap(2 * LIMITS.body_seconds)
    client.send(data)
    assert client.answer().status == 200


def test_the_rest_of_an_answered_request_has_a_limited_time(timed: Served) -> None:
    client = timed.connect()
    client.send(head("POST", "/nowhere", "content-length: 100"))
    assert client.answer().status == 404
    leap_until_closed(timed.live, "body_timeout", LIMITS.body_seconds)
    assert client.ended()


@pytest.mark.parametrize("fields", [(), ("connection: close",)])
def test_an_unread_answer_ends_the_connection(timed: Served, fields: tuple[str, ...]) -> None:
    client = timed.connect(SMALL_BUFFER_BYTES)
    client.send(head("GET", "/openapi.json") * 8 + head("GET", "/openapi.json", *fields))
    eventually(lambda: timed.live.metric("requests_total", method="other") > 0)
    leap_until_closed(timed.live, "send_timeout", LIMITS.send_seconds)
    timed.live.settle()
