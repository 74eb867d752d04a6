"""Connections of HTTP/1.1 that send what a test likes, and the answers to them."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from dragoman.serve.http.limits import HttpLimits
from dragoman.serve.http.server import open_port
from tests.support.certificates import Authority
from tests.support.live import WAIT_SECONDS, LiveService, run_service

JSON = "content-type: application/json"
SMALL_BUFFER_BYTES = 4096


def head(method: str, path: str, *fields: str, version: str = "1.1") -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/{version}", "host: here", *fields, "", "")).encode()


def post(body: object, path: str = "/v1/translate") -> bytes:
    data = json.dumps(body).encode()
    return head("POST", path, JSON, f"content-length: {len(data)}") + data


@dataclass
class Answer:
    """A response of the server."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def reason(self) -> str:
        problem = json.loads(self.body)
        assert self.headers["content-type"] == "application/problem+json"
        assert problem["status"] == self.status
        assert problem["request_id"] == self.headers["x-request-id"]
        return str(problem["reason"])


class Client:
    """A connection to the service that sends what a test likes."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.file = connection.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def drip(self, piece: bytes, pause: Callable[[], None]) -> None:
        """Sends a piece again and again, each after a pause, until the server answers or closes the connection."""
        self.socket.setblocking(False)
        ends_seconds = time.monotonic() + WAIT_SECONDS
        try:
            while time.monotonic() < ends_seconds:
                self.socket.send(piece)
                pause()
                time.sleep(0.01)
                try:
                    self.socket.recv(1, socket.MSG_PEEK)
                except BlockingIOError:
                    continue
                return
        except OSError:
            return
        finally:
            self.socket.settimeout(WAIT_SECONDS)
        raise AssertionError("the server goes on waiting")

    def answer(self) -> Answer:
        line = self.file.readline()
        assert line, "the connection ended without an answer"
        headers = dict(field.decode().strip().lower().split(": ", 1) for field in iter(self.file.readline, b"\r\n"))
        return Answer(int(line.split()[1]), headers, self.file.read(int(headers["content-length"])))

    def ended(self) -> bool:
        """Returns whether the server closes the connection without sending more; a reset raises."""
        return self.file.read(1) == b""


Connect = Callable[..., Client]


def connect_to(stack: ExitStack, live: LiveService, authority: Authority | None = None) -> Connect:
    """Returns a function that opens connections, which the stack closes."""

    def connect(receive_buffer_bytes: int | None = None) -> Client:
        connection = stack.enter_context(socket.socket())
        if receive_buffer_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection.settimeout(WAIT_SECONDS)
        connection.connect(("127.0.0.1", live.service.http_port))
        if authority is not None:
            connection = stack.enter_context(authority.context().wrap_socket(connection, server_hostname="127.0.0.1"))
        client = Client(connection)
        stack.enter_context(client.file)
        return client

    return connect


def open_narrow_port(host: str, port: int) -> socket.socket:
    """Returns a listening socket whose connections buffer little unread data."""
    listener = open_port(host, port)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SMALL_BUFFER_BYTES)
    return listener


@dataclass
class Served:
    """A service and the way to connect to it."""

    live: LiveService
    connect: Connect


def serve_narrow(
    bundle_path: Path, folder: Path, transport: str, limits: HttpLimits, *, leaping: bool = False
) -> Iterator[Served]:
    """Runs a service whose connections, "plain" or "tls", buffer little unread data, for a fixture."""
    authority = Authority(folder) if transport == "tls" else None
    secured = {} if authority is None else authority.settings()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dragoman.serve.service.open_port", open_narrow_port)
        with run_service(bundle_path, http_limits=limits, leaping=leaping, **secured) as live, ExitStack() as stack:
            yield Served(live, connect_to(stack, live, authority))
