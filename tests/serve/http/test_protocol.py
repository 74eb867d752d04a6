"""HTTP/1.1 connections at the byte level: size limits and connection reuse."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.live import WAIT_SECONDS, LiveService

BODY = json.dumps({"text": "alpha beta."}).encode()
LENGTH = f"content-length: {len(BODY)}"
CHUNKS = b"4\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (BODY[:4], len(BODY) - 4, BODY[4:])
# An endless part of a message is sent in pieces of this size.
PIECE = b"a" * 4096


@contextmanager
def connect(live: LiveService) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", live.service.http_port), timeout=WAIT_SECONDS) as connection:
        yield connection


def head(*fields: str, version: str = "1.1") -> bytes:
    lines = [f"POST /v1/translate HTTP/{version}", "host: here", "content-type: application/json", *fields]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def read_answers(connection: socket.socket, count: int = 1) -> list[tuple[int, bytes]]:
    """Reads responses with a content length; returns status and body of each."""
    answers = []
    with connection.makefile("rb") as file:
        for _ in range(count):
            status = int(file.readline().split()[1])
            fields = dict(line.lower().split(b": ", 1) for line in iter(file.readline, b"\r\n"))
            answers.append((status, file.read(int(fields[b"content-length"]))))
    return answers


def read_to_the_end(connection: socket.socket) -> bytes:
    answer = b""
    try:
        while part := connection.recv(65536):
            answer += part
    except ConnectionError:  # the server discarded the rest
        pass
    return answer


def send_without_end(connection: socket.socket, part: bytes, max_bytes: int) -> int:
    """Repeats a part until the server closes the connection; returns the number of bytes sent."""
    sent = 0
    try:
        while sent < max_bytes:
            connection.sendall(part)
            sent += len(part)
    except ConnectionError:
        pass
    return sent


@pytest.mark.parametrize(
    ("start", "part"),
    [
        pytest.param(b"POST /", PIECE, id="target"),
        pytest.param(b"POST / HTTP/1.1\r\n", PIECE, id="name of a field"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: ", PIECE, id="value of a field"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: here\r\n", b"some: thing\r\n" * 300, id="fields"),
        pytest.param(
            head("transfer-encoding: chunked") + b"0\r\n", b"some: thing\r\n" * 300, id="fields behind a body"
        ),
        pytest.param(head("transfer-encoding: chunked") + b"0\r\nsome: ", PIECE, id="value of a field behind a body"),
        pytest.param(head("transfer-encoding: chunked") + b"1;", PIECE, id="extension of a chunk"),
    ],
)
def test_an_endless_message_is_cut_off(live: LiveService, start: bytes, part: bytes) -> None:
    max_bytes = 16 << 20
    with connect(live) as connection:
        connection.sendall(start)
        assert send_without_end(connection, part, max_bytes) < max_bytes
    assert live.post({"text": "alpha beta."}).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("", "here", "here:80", "1.2.3.4:", "[::1]:8000", "[fe80::1%25eth0]", "a_b-c~d")),
        *((host, 400) for host in ("a b", "a/b", "a@b", "a?b", "a#b", "a,b:c", "[::1", "::1", "a:b", "a:1:2", "\xe4")),
    ],
)
def test_an_invalid_host_is_refused(live: LiveService, host: str, status: int) -> None:
    with connect(live) as connection:
        connection.sendall(f"GET /healthz HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode("latin-1"))
        assert read_to_the_end(connection).startswith(b"HTTP/1.1 %d " % status)


def test_a_message_may_arrive_byte_by_byte(live: LiveService) -> None:
    with connect(live) as connection:
        for byte in head(LENGTH) + BODY:
            connection.sendall(bytes([byte]))
        assert read_answers(connection)[0][0] == 200


def test_pipelined_requests_are_served_in_order(live: LiveService) -> None:
    texts = ["alpha.", "beta.", "gamma."]
    bodies = [json.dumps({"text": text}).encode() for text in texts]
    alone = [live.post({"text": text}).json()["translations"] for text in texts]
    with connect(live) as connection:
        connection.sendall(b"".join(head(f"content-length: {len(body)}") + body for body in bodies))
        answers = read_answers(connection, len(texts))
    assert [json.loads(content)["translations"] for _, content in answers] == alone


@pytest.mark.parametrize("together", [False, True])
def test_an_upgrade_offer_is_ignored(live: LiveService, *, together: bool) -> None:
    """Java's HTTP client offers HTTP/2 in the first request of each connection."""
    offer = ("connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQBAAAAAAIAAAAA")
    requests = [head(*offer, LENGTH) + BODY, head(*offer, "transfer-encoding: chunked") + CHUNKS, head(LENGTH) + BODY]
    with connect(live) as connection:
        if together:
            connection.sendall(b"".join(requests))
            answers = read_answers(connection, len(requests))
        else:
            answers = []
            for request in requests:
                connection.sendall(request)
                answers += read_answers(connection)
    assert [status for status, _ in answers] == [200] * len(requests)


def test_expect_100_continue_is_supported(live: LiveService) -> None:
    with connect(live) as connection:
        connection.sendall(head("expect: 100-continue", LENGTH))
        assert connection.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(BODY)
        assert read_answers(connection)[0][0] == 200


@pytest.mark.parametrize(
    "request_head", [head(LENGTH, version="1.0"), head("connection: close, Upgrade", "upgrade: h2c", LENGTH)]
)
def test_http_1_0_and_connection_close_close_the_connection(live: LiveService, request_head: bytes) -> None:
    with connect(live) as connection:
        connection.sendall(request_head + BODY)
        assert read_to_the_end(connection).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize(("length", "status"), [(f"{'0' * 5000}{len(BODY)}", 200), ("1" + "0" * 18, 413)])
def test_a_length_may_have_many_digits(live: LiveService, length: str, status: int) -> None:
    with connect(live) as connection:
        connection.sendall(head(f"content-length: {length}") + BODY)
        ((answered, _),) = read_answers(connection)
    assert answered == status
