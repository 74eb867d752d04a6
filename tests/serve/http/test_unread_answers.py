"""Clients that do not read their answers: they get no further work done, and their memory is bounded and given back."""

import gc
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dragoman.serve.http.connection import Connection
from dragoman.serve.http.limits import PEAK_CONNECTIONS, Connections, HttpLimits
from dragoman.serve.http.output import PIECE_BYTES
from dragoman.serve.http.pipeline import Pipeline
from dragoman.serve.http.tls import TlsLayer
from dragoman.serve.observability.instruments import CloseReason
from dragoman.serve.observability.metrics import ServiceMetrics
from tests.support.certificates import Authority
from tests.support.live import LiveService, eventually, run_service
from tests.support.raw_http import SMALL_BUFFER_BYTES, Connect, connect_to, head, post

LARGE = head("GET", "/openapi.json")


@pytest.fixture(params=["plain", "tls"])
def served(request: pytest.FixtureRequest, bundle_path: Path, tmp_path: Path) -> Iterator[tuple[LiveService, Connect]]:
    """A service, and a function that connects to it with a small buffer."""
    authority = Authority(tmp_path) if request.param == "tls" else None
    secured = {} if authority is None else authority.settings()
    with run_service(bundle_path, **secured) as live, ExitStack() as stack:
        yield live, connect_to(stack, live, authority)


def translations(live: LiveService) -> float:
    return live.metric("requests_total", method="translate", protocol="rest")


def test_no_request_starts_behind_an_unread_answer(served: tuple[LiveService, Connect]) -> None:
    live, connect = served
    clients = [connect(SMALL_BUFFER_BYTES) for _ in range(4)]
    for client in clients:
        client.send((LARGE + post({"text": "alpha."})) * 4)
    eventually(lambda: live.metric("requests_total", method="other", protocol="rest") == len(clients))
    live.settle()
    assert translations(live) == 0
    assert clients[0].answer().status == 200
    assert clients[0].answer().status == 200
    # The third request of this client starts only now.
    eventually(lambda: live.metric("requests_total", method="other", protocol="rest") == len(clients) + 1)
    live.settle()
    assert translations(live) == 1


def test_a_client_that_reads_gets_all_answers_in_order(served: tuple[LiveService, Connect]) -> None:
    _, connect = served
    client = connect(SMALL_BUFFER_BYTES)
    client.send((LARGE + post({"text": "alpha."})) * 4)
    assert [next(iter(json.loads(client.answer().body))) for _ in range(8)] == ["openapi", "translations"] * 4


def test_unread_answers_with_bytes_that_the_server_keeps_hold_a_piece_each(
    served: tuple[LiveService, Connect], monkeypatch: pytest.MonkeyPatch
) -> None:
    live, connect = served
    clients = [connect(SMALL_BUFFER_BYTES) for _ in range(8)]
    monkeypatch.setattr("dragoman.serve.http.limits.MAX_HELD_BYTES", len(clients) * (PIECE_BYTES + (1 << 10)))
    for client in clients:
        client.send(LARGE)
    eventually(lambda: live.metric("requests_total", method="other", protocol="rest") == len(clients))
    bodies = {client.answer().body for client in clients}
    assert len(bodies) == 1
    assert len(bodies.pop()) > 4 * PIECE_BYTES


@pytest.mark.parametrize("fields", [(), ("connection: close",)])
def test_a_large_answer_is_complete_before_the_connection_closes(
    served: tuple[LiveService, Connect], fields: tuple[str, ...]
) -> None:
    """Because the request asks for it, or the client ends its output."""
    _, connect = served
    client = connect(SMALL_BUFFER_BYTES)
    client.send(head("GET", "/openapi.json", *fields))
    if not fields:
        client.file.peek(1)
        socket.socket.shutdown(client.socket, socket.SHUT_WR)
    assert client.answer().status == 200
    assert client.ended()


def kept_connections() -> set[int]:
    """Returns the connections that exist in this process, also those that other tests keep."""
    # `isinstance` would ask lazy objects of other libraries for their class, and they warn.
    return {id(get_object) for get_object in gc.get_objects() if type(get_object) in (Connection, Pipeline, TlsLayer)}


def test_lost_connections_leave_nothing_to_the_garbage_collector(served: tuple[LiveService, Connect]) -> None:
    live, connect = served
    gc.collect()
    before = kept_connections()
    gc.disable()
    try:
        for data in (b"", LARGE * 8, head("POST", "/v1/translate", "content-length: 9"), b"junk\r\n\r\n"):
            client = connect(SMALL_BUFFER_BYTES)
            client.send(data)
            client.file.close()
            client.socket.close()
        eventually(lambda: live.metric("http_connections") == 0)
        eventually(lambda: kept_connections() <= before)
    finally:
        gc.enable()


class Held:
    """A connection that notes why it was aborted."""

    def __init__(self) -> None:
        self.reason: CloseReason | None = None

    def shutdown(self) -> None:
        """Does nothing."""

    def sweep(self, now_seconds: float) -> None:
        """Does nothing."""

    def abort(self, reason: CloseReason) -> None:
        self.reason = reason

    def has_unread_input(self) -> bool:
        """Returns False: all input was read."""
        return False


@pytest.fixture
def connections() -> Connections:
    return Connections(HttpLimits(), ServiceMetrics().http_connections)


def test_what_waits_on_all_connections_is_bounded_and_the_largest_closes(
    connections: Connections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.serve.http.limits.MAX_HELD_BYTES", 100)
    small, large, last = held = [Held(), Held(), Held()]
    for item in held:
        connections.add(item, "127.0.0.1")
    connections.hold(small, 90)
    connections.hold(small, 20)
    connections.hold(large, 50)
    assert [item.reason for item in held] == [None, None, None]
    connections.hold(last, 40)
    assert [item.reason for item in held] == [None, "send_timeout", None]
    connections.remove(large)
    connections.hold(large, 1000)  # a closed connection holds nothing
    connections.hold(last, 80)
    assert last.reason is None
    connections.remove(last)
    connections.hold(small, 100)
    assert small.reason is None


def test_a_peak_of_connections_ends_once(connections: Connections) -> None:
    held = [Held() for _ in range(PEAK_CONNECTIONS)]
    for item in held:
        connections.add(item, "127.0.0.1")
    assert not connections.end_peak()
    for item in held[: PEAK_CONNECTIONS // 2]:
        connections.remove(item)
    assert [connections.end_peak() for _ in range(2)] == [True, False]
