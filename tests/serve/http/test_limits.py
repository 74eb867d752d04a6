"""Limits of the number and size of what waits over HTTP/1.1, over plain connections and over TLS."""

import asyncio
import errno
import gzip
import json
import resource
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.serve.edge.body_coding import SMALL_CONTENT_BYTES
from dragoman.serve.edge.reader import MAX_LARGEST_BODIES
from dragoman.serve.edge.value_limit import check_json
from dragoman.serve.host.system import max_open_files, raise_most_open_files
from dragoman.serve.http.limits import HttpLimits, affordable_connections
from dragoman.serve.http.server import Listener, open_port
from dragoman.serve.translation import large_work
from tests.support.cases import cases
from tests.support.fake_bundles import LONG_TEXT
from tests.support.live import WAIT_SECONDS, GatedModel, LiveService, eventually, run_service
from tests.support.raw_http import (
    JSON,
    SMALL_BUFFER_BYTES,
    Connect,
    Served,
    connect_to,
    head,
    open_narrow_port,
    post,
    serve_narrow,
)

CASES = cases(__file__)

HOUR = "x-request-timeout-ms: 3600000"
# The server closes connections soon after their last answer.
QUICK = HttpLimits(linger_seconds=0.2, sweep_seconds=0.05)
PROBE = head("GET", "/healthz")
BEGUN_BODY = head("POST", "/v1/translate", JSON, HOUR, "content-length: 100") + b"{"


@pytest.fixture(scope="module", params=["plain", "tls"])
def served(
    request: pytest.FixtureRequest, bundle_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    yield from serve_narrow(bundle_path, tmp_path_factory.mktemp("authority"), request.param, QUICK)


def closed(live: LiveService, reason: str) -> float:
    return live.metric("http_connections_closed_total", reason=reason)


def test_a_connection_goes_on_if_the_rest_of_an_answered_request_arrives(served: Served) -> None:
    client = served.connect()
    client.send(head("POST", "/nowhere", "content-length: 100"))
    assert client.answer().status == 404
    client.send(b"x" * 100 + PROBE)
    assert client.answer().status == 200


def wait_for(connection: socket.socket, event: int) -> bool:
    """Waits for an event of a socket, whose number may be beyond those of `select.select`; returns whether it came."""
    waiting = select.poll()
    waiting.register(connection, event)
    return bool(waiting.poll(1000 * WAIT_SECONDS))


@pytest.mark.parametrize("fields", [(), ("connection: close",)])
def test_the_rest_of_an_answered_request_does_not_reset_the_connection(
    connect: Connect, fields: tuple[str, ...]
) -> None:
    """A client that sends it first can still read the answer."""
    client = connect()
    client.send(head("POST", "/nowhere", "content-length: 3000000", *fields) + b"x")
    wait_for(client.socket, select.POLLIN)
    for _ in range(20):
        client.send(bytes(100_000))
        time.sleep(0.005)
    assert client.answer().status == 404


def test_requests_whose_bodies_never_come_shut_no_door(live: LiveService, connect: Connect) -> None:
    """More than slots, queue and those that are read or written."""
    count = 2 * (live.service.core.load_shedder._capacities[0] + 1)
    for _ in range(count):
        connect().send(BEGUN_BODY)
    eventually(lambda: live.metric("inflight_requests") == count)
    assert live.post({"text": "alpha."}).status_code == 200
    assert live.call(TranslateRequest(text=["alpha."])).translations


def test_an_unread_stream_gives_its_place(bundle_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection remains, until it is late."""
    monkeypatch.setattr("dragoman.serve.service.open_port", open_narrow_port)
    with run_service(bundle_path, queue_limit=64) as live, ExitStack() as stack:
        client = connect_to(stack, live)(SMALL_BUFFER_BYTES)
        client.send(post({"text": [LONG_TEXT] * 64}, "/v1/translate/stream"))
        assert client.file.readline()
        eventually(lambda: live.service.core.load_shedder._inside == 0)
        assert live.metric("inflight_requests") == 1


def test_bodies_in_memory_are_bounded_and_the_oldest_ends(bundle_path: Path) -> None:
    with run_service(bundle_path, max_body_bytes=2000) as live, ExitStack() as stack:
        connect = connect_to(stack, live)
        clients = []
        for _ in range(MAX_LARGEST_BODIES + 2):
            clients.append(connect())
            clients[-1].send(head("POST", "/v1/translate", JSON, HOUR, "content-length: 2000") + b" " * 1990)
            eventually(lambda: live.metric("inflight_requests") >= min(len(clients), MAX_LARGEST_BODIES))
        assert clients[0].answer().reason == "request_timeout"
        assert live.post({"text": "alpha."}).status_code == 200


class Gates:
    """Holds large work back: all of it, and those that parse a body."""

    def __init__(self, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.parts, self.parsing, self.parse = (threading.Event() for _ in range(3))
        for module in ("bodies", "parameters"):
            monkeypatch.setattr(f"dragoman.serve.edge.{module}.check_json", self._check_json)
        self._executor = large_work.LARGE_WORK._executor
        self._executor.submit(self.parts.wait)
        stack.callback(self.parts.set)
        stack.callback(self.parse.set)

    @property
    def waiting(self) -> int:
        """Parts of large work that wait behind the one that runs."""
        return self._executor._work_queue.qsize()

    def _check_json(self, data: bytes, max_values: int) -> None:
        if threading.current_thread() in self._executor._threads:
            self.parsing.set()
            self.parse.wait()
        check_json(data, max_values)


@pytest.mark.parametrize("path", ["/v1/detect", "/detect", "/v1/translate"])
@pytest.mark.parametrize("compressed", [False, True])
def test_complete_bodies_that_wait_are_bounded_and_a_new_one_is_refused(
    bundle_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, *, compressed: bool
) -> None:
    """Before and after they are decompressed, with and without an engine. Small ones do not wait."""
    size = 4 * SMALL_CONTENT_BYTES
    text = json.dumps({"q" if path == "/detect" else "text": "alpha."}).encode()
    content = text + b" " * (size - len(text))
    coding = ("content-encoding: gzip",) if compressed else ()
    body = gzip.compress(content) if compressed else content
    request = head("POST", path, JSON, f"content-length: {len(body)}", *coding) + body
    # Compressed ones reserve a largest content, besides themselves.
    count = MAX_LARGEST_BODIES - compressed
    with run_service(bundle_path, max_body_bytes=size, queue_limit=64) as live, ExitStack() as stack:
        connect, gates = connect_to(stack, live), Gates(stack, monkeypatch)
        clients = [connect() for _ in range(count)]

        def check_refused() -> None:
            late = connect()
            late.send(request)
            answer = late.answer()
            assert (answer.status, "retry-after" in answer.headers) == (429, True)
            assert live.post({"text": "alpha."}).status_code == 200

        for client in clients:
            client.send(request)
        eventually(lambda: gates.waiting == count)
        check_refused()
        gates.parts.set()
        assert gates.parsing.wait(WAIT_SECONDS)
        check_refused()
        gates.parse.set()
        assert {client.answer().status for client in clients} == {200}
        clients[0].send(request)
        assert clients[0].answer().status == 200


def test_half_headers_at_the_limit_of_connections_shut_no_door(bundle_path: Path) -> None:
    """The oldest connection without a request gives its place; one with earlier requests keeps it."""
    with run_service(bundle_path, http_limits=HttpLimits(connections=4)) as live, ExitStack() as stack:
        connect = connect_to(stack, live)
        good = connect()
        good.send(PROBE)
        assert good.answer().status == 200
        for _ in range(20):
            connect().send(b"GET /healthz HTTP/1.1\r\nhost: ")
        assert live.get("/healthz").status_code == 200
        good.send(PROBE)
        assert good.answer().status == 200
        assert live.metric("http_connections") <= 4
        eventually(lambda: closed(live, "evicted") >= 17)


@pytest.mark.parametrize(
    "request_", [BEGUN_BODY, PROBE * 12 + head("GET", "/openapi.json") * 5], ids=["body", "answers"]
)
def test_waiting_requests_at_the_limit_of_connections_shut_no_door(
    bundle_path: Path, monkeypatch: pytest.MonkeyPatch, request_: bytes
) -> None:
    """The oldest body ends, and an unread answer gives its connection."""
    monkeypatch.setattr("dragoman.serve.service.open_port", open_narrow_port)
    with run_service(bundle_path, http_limits=HttpLimits(connections=8)) as live, ExitStack() as stack:
        connect = connect_to(stack, live)
        # The first request waits for the document to be written, and a request in progress keeps its connection.
        assert live.get("/openapi.json").status_code == 200
        for _ in range(20):
            connect(SMALL_BUFFER_BYTES).send(request_)
        for _ in range(3):
            assert live.post({"text": "alpha."}).status_code == 200
        assert closed(live, "too_many") == 0


def test_a_request_that_the_server_has_not_read_keeps_its_connection(bundle_path: Path) -> None:
    """The loop is busy while a request arrives, then a silent connection, then another request."""
    with run_service(bundle_path, http_limits=HttpLimits(connections=2)) as live, ExitStack() as stack:
        connect = connect_to(stack, live)
        busy = threading.Event()
        live.loop.call_soon_threadsafe(busy.wait, WAIT_SECONDS)
        first, _silent, second = (connect() for _ in range(3))
        for client in (first, second):
            client.send(PROBE)
        busy.set()
        assert [client.answer().status for client in (first, second)] == [200, 200]
        assert closed(live, "evicted") == 1


def test_bodies_that_never_come_take_no_place_of_an_idle_connection(
    bundle_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragoman.serve.edge.reader.MAX_BODIES_SHARE", 1.0)
    begun = head("POST", "/v1/translate", JSON, "expect: 100-continue", "content-length: 100")
    with run_service(bundle_path, http_limits=HttpLimits(connections=4)) as live, ExitStack() as stack:
        connect = connect_to(stack, live)
        good = connect()
        for _ in range(5):
            good.send(PROBE)
            assert good.answer().status == 200
            for _ in range(3):
                client = connect()
                client.send(begun)
                assert b"100 Continue" in client.file.readline()


def test_a_connection_too_many_gets_503_at_once(bundle_path: Path) -> None:
    model = GatedModel(slots=4)
    with run_service(bundle_path, [model], http_limits=HttpLimits(connections=2)) as live, ExitStack() as stack:
        model.gate.clear()
        connect = connect_to(stack, live)
        busy = [connect() for _ in range(2)]
        for client in busy:
            client.send(post({"text": LONG_TEXT}))
        eventually(lambda: live.metric("inflight_requests") == 2)
        answer = connect().answer()
        assert (answer.status, answer.reason) == (503, "service_unavailable")
        assert answer.headers["connection"] == "close"
        eventually(lambda: closed(live, "too_many") == 1)
        model.gate.set()
        assert [client.answer().status for client in busy] == [200, 200]


def test_connections_per_address_are_limited_by_a_setting(bundle_path: Path) -> None:
    with run_service(bundle_path, http_max_connections_per_address=2) as live, ExitStack() as stack:
        connect = connect_to(stack, live)
        clients = [connect() for _ in range(2)]
        assert connect().answer().status == 503
        eventually(lambda: closed(live, "too_many_per_address") == 1)
        clients[0].socket.shutdown(socket.SHUT_RDWR)
        eventually(lambda: live.metric("http_connections") == 1)
        assert live.get("/healthz").status_code == 200


def test_connections_leave_descriptors_for_everything_else() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1000, hard))
        assert affordable_connections() == 500
        raise_most_open_files()
        assert max_open_files() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_listener_without_descriptors_pauses_and_logs_once() -> None:
    class Exhausted:
        """A listening socket with a waiting connection that cannot be accepted."""

        def __init__(self, listening: socket.socket) -> None:
            self.fileno, self.setblocking = listening.fileno, listening.setblocking
            self.setsockopt, self.close = listening.setsockopt, listening.close

        def accept(self) -> Any:
            raise OSError(errno.EMFILE, "Too many open files")

    async def listen() -> None:
        with open_port("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
            listener = Listener(cast("socket.socket", Exhausted(listening)), lambda *_: None)
            await asyncio.sleep(0.2)
            listener.close()

    with capture_logs() as logs:
        asyncio.run(listen())
    assert 1 <= len([log for log in logs if log["event"] == "accept_failed"]) <= 2  # the second at the end


@pytest.mark.parametrize(
    ("data", "status"),
    [
        *(
            pytest.param(text.encode(), status, id=name)
            for name, (text, status) in CASES["a request that cannot be served gets a problem document"].items()
        ),
        pytest.param(head("POST", "/", "transfer-encoding: chunked", version="1.0"), 501, id="chunked HTTP/1.0"),
        pytest.param(head("CONNECT", "here:80"), 400, id="tunnel"),
        pytest.param(head("GET", "/" + "a" * 9000), 414, id="long target"),
        pytest.param(head("GET", "/healthz", "x-a: " + "a" * 33_000), 431, id="long field"),
        pytest.param(head("GET", "/healthz", *["x-a: 1"] * 101), 431, id="many fields"),
    ],
)
def test_a_request_that_cannot_be_served_gets_a_problem_document(served: Served, data: bytes, status: int) -> None:
    client = served.connect()
    client.send(data)
    answer = client.answer()
    assert answer.status == status
    assert answer.reason
    assert answer.headers["connection"] == "close"
    assert client.ended()


def test_a_fault_is_answered_after_the_requests_before_it(live: LiveService, connect: Connect) -> None:
    del live
    client = connect()
    client.send(post({"text": "alpha."}) + PROBE + b"junk\r\n\r\n")
    assert [client.answer().status for _ in range(3)] == [200, 200, 400]
    assert client.ended()


def test_pipelined_requests_are_bounded(live: LiveService, connect: Connect) -> None:
    client = connect()
    client.send(PROBE * 200)
    statuses: list[int] = []
    while statuses[-1:] != [503]:
        statuses.append(client.answer().status)
    assert set(statuses[:-1]) == {200}
    assert len(statuses) < 30
    assert client.ended()
    eventually(lambda: closed(live, "pipelined") == 1)


def test_trailer_fields_are_no_headers(live: LiveService, connect: Connect) -> None:
    del live
    body = json.dumps({"text": "alpha."}).encode()
    client = connect()
    client.send(head("POST", "/v1/translate", JSON, "transfer-encoding: chunked"))
    client.send(b"%x\r\n%b\r\n0\r\nx-request-id: mine\r\n\r\n" % (len(body), body))
    assert client.answer().headers["x-request-id"] != "mine"


def test_the_wildcard_of_ipv6_hears_ipv4_too() -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6")
    with open_port("::", 0) as listening:
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, listening.getsockname()[1]), WAIT_SECONDS).close()


def test_a_client_that_connects_while_the_server_stops_is_refused_and_not_reset(
    bundle_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the last `accept`, and before the port closes."""
    leave = Listener.leave
    with socket.socket() as client:

        def connect_and_leave(listener: Listener) -> None:
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", live.service.http_port))
            leave(listener)

        with run_service(bundle_path) as live:
            monkeypatch.setattr(Listener, "leave", connect_and_leave)
        assert wait_for(client, select.POLLOUT)
        assert client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED


def test_no_connection_is_reset_when_the_server_stops(bundle_path: Path) -> None:
    """A request in transit gets an answer, or the connection ends without one."""

    def ask(live: LiveService) -> list[int | str]:
        outcomes: list[int | str] = []
        while True:
            try:
                with ExitStack() as stack:
                    client = connect_to(stack, live)()
                    while True:
                        client.send(post({"text": "alpha."}))
                        line = client.file.readline()
                        if not line:
                            outcomes.append("ended")
                            return outcomes
                        fields = dict(
                            item.decode().strip().lower().split(": ", 1) for item in iter(client.file.readline, b"\r\n")
                        )
                        client.file.read(int(fields["content-length"]))
                        outcomes.append(int(line.split()[1]))
                        if "connection" in fields:
                            break
            except ConnectionRefusedError:
                return outcomes

    with run_service(bundle_path) as live, ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, live) for _ in range(8)]
        eventually(lambda: live.metric("requests_total", outcome="ok") >= len(answers))
        live.stop()
        outcomes = [outcome for answer in answers for outcome in answer.result(WAIT_SECONDS)]
    assert set(outcomes) <= {200, 503, "ended"}
    assert 200 in outcomes
