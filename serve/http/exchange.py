"""One HTTP/1.1 request and its answer, as an ASGI application sees them.

The head of an answer is written with the first part of its body: most answers take one system call.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import Any, Protocol
from urllib.parse import unquote

import httptools
import structlog
from starlette.types import ASGIApp, Message

from dragoman.serve.http.output import PIECE_BYTES, Output

# Key of the request state: the `Exchange`.
EXCHANGE = "exchange"
# A body that the application has not received makes the connection pause from this size on.
MAX_BODY_BYTES = 64 << 10
ASGI_VERSION = {"version": "3.0", "spec_version": "2.3"}
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
# A status without a phrase has a line too.
STATUS_LINES = {status: b"HTTP/1.1 %d \r\n" % status for status in range(100, 600)}
STATUS_LINES |= {int(item): b"HTTP/1.1 %d %b\r\n" % (item, item.phrase.encode()) for item in HTTPStatus}
WITHOUT_BODY = (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
_INVALID_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_FAILURE = (
    b"HTTP/1.1 500 Internal Server Error\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 21\r\n"
    b"connection: close\r\n\r\nInternal Server Error"
)

Headers = Sequence[tuple[bytes, bytes]]

log = structlog.get_logger("dragoman")


class Carrier(Protocol):
    """The requests of a connection, one of which an exchange is."""

    def end_answer(self, *, keep_alive: bool) -> None:
        """Takes note of a complete answer; without `keep_alive`, the connection closes."""

    def end_run(self, exchange: "Exchange") -> None:
        """Takes note that the application has ended."""

    @property
    def paused(self) -> bool:
        """Whether it receives nothing."""

    def resume_reading(self) -> None:
        """Receives more of the body."""


@lru_cache(maxsize=1)
def _date_line(second: int) -> bytes:
    """Returns the `date` header, which changes once a second."""
    return b"date: %b\r\n" % formatdate(second, usegmt=True).encode()


class Exchange:
    """A request whose header is complete.

    Attributes:
        body: what has arrived since the application received a part last.
        more_body: whether more of it follows.
        disconnected: whether the client has gone away.
        keep_alive: whether the connection serves further requests.
        started, complete: whether the answer has begun, and has ended.
    """

    def __init__(
        self, carrier: Carrier, output: Output, scope: dict[str, Any], *, keep_alive: bool, expects_continue: bool
    ) -> None:
        self._carrier = carrier
        self._output = output
        self._scope = scope
        self._expects_continue = expects_continue
        self._changed = False
        self._change: asyncio.Event | None = None
        self.keep_alive = keep_alive
        self.body = bytearray()
        self.more_body = True
        self.disconnected = self.started = self.complete = False
        self._received = False
        self._head = b""
        self._chunked = False
        self._left_bytes = 0
        self._leave: Callable[[], object] = lambda: None

    def take_body(self) -> bytes | None:
        """Returns the whole body, and leaves an empty one; None: a part is missing or was received before."""
        if self.more_body or self._received:
            return None
        body, self.body = bytes(self.body), bytearray()
        return body

    def add_body(self, data: bytes) -> bool:
        """Takes a part of the body; returns whether the connection should pause."""
        if self.complete:
            return False
        self.body += data
        self._note_change()
        return len(self.body) > MAX_BODY_BYTES

    def end_body(self) -> None:
        """Takes the end of the body."""
        if not self.complete:
            self.more_body = False
            self._note_change()

    def disconnect(self) -> None:
        """Notifies the application that its client has gone away."""
        self.disconnected = True
        self._note_change()
        self._leave()

    def _note_change(self) -> None:
        self._changed = True
        if self._change is not None:
            self._change.set()

    def watch(self, leave: Callable[[], object] = lambda: None) -> None:
        """Calls a function when the client goes away, in place of the function before; reads on until then."""
        self._leave = leave
        if self.disconnected:
            asyncio.get_running_loop().call_soon(leave)
        elif not self.complete and self._carrier.paused:
            self._carrier.resume_reading()

    async def run(self, app: ASGIApp) -> None:
        """Runs the application; an answer that it does not complete closes the connection."""
        state = self._scope["state"]
        state[EXCHANGE] = self
        try:
            await app(self._scope, self.receive, self.send)
        except Exception:
            log.exception("application_failed", path=self._scope["path"])
        finally:
            del state[EXCHANGE]  # a reference cycle
            if not self.complete and not self.disconnected:
                if not self.started:
                    self._output.write(_FAILURE)
                self._output.close()
            # A callback of the finished task would take another iteration of the event loop.
            self._carrier.end_run(self)

    async def receive(self) -> Message:
        """Returns the next part of the body, or the disconnection."""
        if self._expects_continue and not self._output.closing:
            self._expects_continue = False
            self._output.write(CONTINUE)
        if not self.disconnected and not self.complete:
            self._carrier.resume_reading()
            await self._wait_for_change()
        if self.disconnected or self.complete:
            return {"type": "http.disconnect"}
        self._received = True
        body, self.body = bytes(self.body), bytearray()
        return {"type": "http.request", "body": body, "more_body": self.more_body}

    async def _wait_for_change(self) -> None:
        if not self._changed:
            self._change = self._change or asyncio.Event()
            self._change.clear()
            await self._change.wait()
        self._changed = False

    async def send(self, message: Message) -> None:
        """Sends the head or a part of the body."""
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            self._start(message["status"], message.get("headers", ()))
        elif message["type"] == "http.response.body":
            self._send_body(message.get("body", b""), more=message.get("more_body", False))

    def _start(self, status: int, headers: Headers) -> None:
        if self.started:
            raise RuntimeError("the answer has started")
        self.started = True
        self._expects_continue = False
        sized = status in WITHOUT_BODY or self._scope["method"] == "HEAD"
        if _INVALID_VALUE.search(b"".join(chain.from_iterable(headers))):
            invalid = next(name for name, value in headers if _INVALID_VALUE.search(value))
            raise RuntimeError(f"{invalid.decode()}: invalid value of a header")
        lines = [STATUS_LINES[status], _date_line(int(time.time())), *map(b"%b: %b\r\n".__mod__, headers)]
        fields = dict(headers)
        if b"content-length" in fields:
            sized, self._left_bytes = True, int(fields[b"content-length"])
        if fields.get(b"connection") == b"close":
            self.keep_alive = False
        elif not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if not sized:
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        self._head = b"".join(lines)

    def _send_body(self, body: bytes, *, more: bool) -> None:
        if self.complete or not self.started:
            raise RuntimeError("the answer is complete" if self.complete else "the answer has not started")
        if self._scope["method"] == "HEAD":
            body, self._left_bytes = b"", 0
        elif self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        else:
            self._left_bytes -= len(body)
            if self._left_bytes < 0 or (self._left_bytes and not more):
                raise RuntimeError("the answer differs in size from its content-length")
        self._write(body)
        if not more:
            self.complete = True
            self._note_change()
            self._carrier.end_answer(keep_alive=self.keep_alive)

    def _write(self, body: bytes) -> None:
        head, self._head = self._head, b""
        if head and len(body) > PIECE_BYTES:  # without a copy
            self._output.write(head)
            head = b""
        if data := head + body if head else body:
            self._output.write(data)


def make_scope(
    method: bytes, target: bytes, version: str, headers: list[tuple[bytes, bytes]], connection: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the ASGI scope of a request.

    Args:
        method: as received.
        target: as received.
        headers: with names in lower case.
        connection: what all requests of a connection share: `scheme`, `client`, `server` and `state`.

    Raises:
        httptools.HttpParserInvalidURLError: if the target is invalid.
    """
    url = httptools.parse_url(target)
    path = url.path.decode("ascii")
    return {
        **connection,
        "type": "http",
        "asgi": ASGI_VERSION,
        "http_version": version,
        "method": method.decode("ascii"),
        "root_path": "",
        "path": unquote(path) if "%" in path else path,
        "raw_path": url.path,
        "query_string": url.query or b"",
        "headers": headers,
        "state": dict(connection["state"]),
    }
