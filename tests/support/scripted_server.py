"""An HTTP server on this machine whose next answers a test writes byte by byte."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Event

from tests.support.http_serving import QuietHandler, serving

# Writes an answer; the event is set when the test ends.
Answer = Callable[["Handler"], None]


@dataclass
class ScriptedServer:
    """The answers to the next requests, the last one for all that follow, and what was requested.

    Attributes:
        requests: method, path and range of each request.
        headers: of each request, with names in lower case.
        ended: set when the test ends.
    """

    answers: list[Answer] = field(default_factory=list)
    requests: list[tuple[str, str, str | None]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    ended: Event = field(default_factory=Event)
    address: str = ""


class Handler(QuietHandler, BaseHTTPRequestHandler):
    """Answers as the script states."""

    server_of_test: ScriptedServer

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        script = self.server_of_test
        script.requests.append((self.command, self.path, self.headers.get("range")))
        script.headers.append({name.lower(): value for name, value in self.headers.items()})
        answer = script.answers.pop(0) if len(script.answers) > 1 else script.answers[0]
        with suppress(ConnectionError):
            answer(self)


def reply(content: bytes = b"", status: int = 200, *, length: int | None = None, **headers: str) -> Answer:
    """Returns an answer with a body and headers; underscores in their names are hyphens.

    Args:
        length: stated length of the body; None: the true one, negative: none.
    """

    def answer(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        stated = len(content) if length is None else length
        if stated >= 0:
            handler.send_header("content-length", str(stated))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def ranged(content: bytes) -> Answer:

    def answer(handler: Handler) -> None:
        start = int((handler.headers.get("range") or "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            reply(status=416)(handler)
        elif start:
            given = f"bytes {start}-{len(content) - 1}/{len(content)}"
            reply(content[start:], 206, content_range=given)(handler)
        else:
            reply(content)(handler)

    return answer


def silence(handler: Handler) -> None:
    """Answers nothing until the test ends."""
    handler.server_of_test.ended.wait()


def stall_after(content: bytes, length: int) -> Answer:
    """Returns an answer that ends after a part of its body and keeps the connection."""

    def answer(handler: Handler) -> None:
        reply(content, length=length)(handler)
        handler.wfile.flush()
        silence(handler)

    return answer


def trickle(head: bytes, piece: bytes, pause_seconds: float) -> Answer:
    """Returns an answer that sends bytes and then one small piece after the other without end."""

    def answer(handler: Handler) -> None:
        handler.wfile.write(head)
        while not handler.server_of_test.ended.wait(pause_seconds):
            handler.wfile.write(piece)
            handler.wfile.flush()

    return answer


@contextmanager
def run_scripted_server() -> Iterator[ScriptedServer]:
    """Runs a server without answers."""
    script = ScriptedServer()
    with serving(type("ScriptedHandler", (Handler,), {"server_of_test": script})) as script.address:
        try:
            yield script
        finally:
            script.ended.set()
