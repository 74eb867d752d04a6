"""HTTP/1.1 connections at the byte level: size limits and connection reuse."""

import json

import pytest

from tests.support import raw_http
from tests.support.live import LiveService
from tests.support.raw_http import Client, Connect

BODY = json.dumps({"text": "alpha beta."}).encode()
LENGTH = f"content-length: {len(BODY)}"
CHUNKS = b"4\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (BODY[:4], len(BODY) - 4, BODY[4:])
# An endless part of a message is sent in pieces of this size.
PIECE = b"a" * 4096


def head(*fields: str, version: str = "1.1") -> bytes:
    return raw_http.head("POST", "/v1/translate", raw_http.JSON, *fields, version=version)


def send_without_end(client: Client, part: bytes, max_bytes: int) -> int:
    """Repeats a part until the server closes the connection; returns the number of bytes sent."""
    sent = 0
    try:
        while sent < max_bytes:
            client.send(part)
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
def test_an_endless_message_is_cut_off(live: LiveService, connect: Connect, start: bytes, part: bytes) -> None:
    max_bytes = 16 << 20
    client = connect()
    client.send(start)
    assert send_without_end(client, part, max_bytes) < max_bytes
    assert live.post({"text": "alpha beta."}).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("", "here", "here:80", "1.2.3.4:", "[::1]:8000", "[fe80::1%25eth0]", "a_b-c~d")),
        *((host, 400) for host in ("a b", "a/b", "a@b", "a?b", "a#b", "a,b:c", "[::1", "::1", "a:b", "a:1:2", "\xe4")),
    ],
)
def test_an_invalid_host_is_refused(connect: Connect, host: str, status: int) -> None:
    client = connect()
    client.send(f"GET /healthz HTTP/1.1\r\nhost: {host}\r\n\r\n".encode("latin-1"))
    assert client.answer().status == status


def test_a_message_may_arrive_byte_by_byte(connect: Connect) -> None:
    client = connect()
    for byte in head(LENGTH) + BODY:
        client.send(bytes([byte]))
    assert client.answer().status == 200


def test_pipelined_requests_are_served_in_order(live: LiveService, connect: Connect) -> None:
    texts = ["alpha.", "beta.", "gamma."]
    bodies = [json.dumps({"text": text}).encode() for text in texts]
    alone = [live.post({"text": text}).json()["translations"] for text in texts]
    client = connect()
    client.send(b"".join(head(f"content-length: {len(body)}") + body for body in bodies))
    assert [json.loads(client.answer().body)["translations"] for _ in texts] == alone


@pytest.mark.parametrize("together", [False, True])
def test_an_upgrade_offer_is_ignored(connect: Connect, *, together: bool) -> None:
    """Java's HTTP client offers HTTP/2 in the first request of each connection."""
    offer = ("connection: upgrade, http2-settings", "upgrade: h2c", "http2-settings: AAMAAABkAAQBAAAAAAIAAAAA")
    requests = [head(*offer, LENGTH) + BODY, head(*offer, "transfer-encoding: chunked") + CHUNKS, head(LENGTH) + BODY]
    client = connect()
    for sent in [b"".join(requests)] if together else requests:
        client.send(sent)
        statuses = [client.answer().status for _ in range(len(requests) if together else 1)]
        assert set(statuses) == {200}


def test_expect_100_continue_is_supported(connect: Connect) -> None:
    client = connect()
    client.send(head("expect: 100-continue", LENGTH))
    assert client.socket.recv(65536) == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(BODY)
    assert client.answer().status == 200


@pytest.mark.parametrize(
    "request_head", [head(LENGTH, version="1.0"), head("connection: close, Upgrade", "upgrade: h2c", LENGTH)]
)
def test_http_1_0_and_connection_close_close_the_connection(connect: Connect, request_head: bytes) -> None:
    client = connect()
    client.send(request_head + BODY)
    assert client.answer().status == 200
    assert client.ended()


@pytest.mark.parametrize(("length", "status"), [(f"{'0' * 5000}{len(BODY)}", 200), ("1" + "0" * 18, 413)])
def test_a_length_may_have_many_digits(connect: Connect, length: str, status: int) -> None:
    client = connect()
    client.send(head(f"content-length: {length}") + BODY)
    assert client.answer().status == status
