"""One request and its answer, between a connection and an ASGI application."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send
from structlog.testing import capture_logs

from dragoman.serve.edge.reader import headers_of
from dragoman.serve.http.exchange import Exchange, make_scope

App = Callable[[Scope, Receive, Send], Awaitable[None]]
CONNECTION = {"scheme": "http", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 2), "state": {"key": 1}}


class FakeCarrier:
    """A connection and its output that records what happens to it."""

    def __init__(self) -> None:
        self.writes = list[bytes]()
        self.ended: bool | None = None
        self.closing = self.paused = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def end_answer(self, *, keep_alive: bool) -> None:
        self.ended = keep_alive

    def close(self) -> None:
        self.closing = True

    def end_run(self, exchange: Exchange) -> None:
        assert exchange.complete or self.closing

    def resume_reading(self) -> None:
        """Does nothing."""


def serve(app: App, body: bytes = b"", **options: bool) -> FakeCarrier:
    """Runs an application for one request with a complete body."""

    async def run() -> FakeCarrier:
        output: Any = (carrier := FakeCarrier())
        scope = make_scope(b"POST", b"/a%20b?c=d", "1.1", [(b"host", b"x")], CONNECTION)
        exchange = Exchange(carrier, output, scope, **{"keep_alive": True, "expects_continue": False, **options})
        exchange.add_body(body)
        exchange.end_body()
        await exchange.run(app)
        return carrier

    return asyncio.run(run())


def answering(*bodies: bytes, **headers: str) -> App:
    """Returns an application that sends an answer in parts."""

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": pairs})
        for number, body in enumerate(bodies, start=1):
            await send({"type": "http.response.body", "body": body, "more_body": number < len(bodies)})

    return app


def test_a_whole_answer_is_one_write() -> None:
    carrier = serve(answering(b"abc", content_length="3"))
    (data,) = carrier.writes
    assert data.startswith(b"HTTP/1.1 200 OK\r\ndate: ")
    assert data.endswith(b"\r\ncontent-length: 3\r\n\r\nabc")
    assert (carrier.ended, carrier.closing) == (True, False)


@pytest.mark.parametrize("closes", ["client", "application"])
def test_the_last_answer_of_a_connection_announces_its_end(closes: str) -> None:
    headers = {"connection": "close"} if closes == "application" else {}
    carrier = serve(answering(b"", content_length="0", **headers), keep_alive=closes != "client")
    assert carrier.writes[0].count(b"connection: close\r\n") == 1
    assert carrier.ended is False


@pytest.mark.parametrize(
    "app",
    [
        answering(b"abc", content_length="2"),
        answering(b"abc", content_length="4"),
        answering(b"abc", content_length="3", x="a\r\nb"),
    ],
    ids=["too long", "too short", "header injection"],
)
def test_a_malformed_answer_is_not_sent(app: App) -> None:
    with capture_logs() as logs:
        carrier = serve(app)
    assert carrier.closing
    assert carrier.ended is None
    assert [log["event"] for log in logs] == ["application_failed"]


def test_an_application_that_fails_first_gets_an_answer() -> None:
    async def app(_scope: Scope, _receive: Receive, _send: Send) -> None:
        raise ValueError

    with capture_logs():
        carrier = serve(app)
    assert carrier.writes[0].startswith(b"HTTP/1.1 500 ")
    assert carrier.closing


def test_the_body_is_received_once_and_a_waiting_client_is_asked_for_it() -> None:
    seen = list[Any]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend((scope["path"], scope["query_string"], scope["state"]["key"], await receive()))
        await answering(b"", content_length="0")(scope, receive, send)
        seen.append(await receive())

    carrier = serve(app, body=b"text", expects_continue=True)
    assert seen[:3] == ["/a b", b"c=d", 1]
    assert seen[3:] == [{"type": "http.request", "body": b"text", "more_body": False}, {"type": "http.disconnect"}]
    assert carrier.writes[0] == b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.anyio
@pytest.mark.parametrize("early", [False, True], ids=["watched before", "watched afterwards"])
async def test_only_the_last_watch_learns_that_the_client_has_gone_away(*, early: bool) -> None:
    seen = list[str]()
    scope = make_scope(b"POST", b"/", "1.1", [(b"host", b"x")], CONNECTION)
    output: Any = (carrier := FakeCarrier())
    exchange = Exchange(carrier, output, scope, keep_alive=True, expects_continue=False)
    if early:
        exchange.disconnect()
    else:
        exchange.watch(lambda: seen.append("first"))
    exchange.watch(lambda: seen.append("last"))
    if not early:
        exchange.disconnect()
    await asyncio.sleep(0)
    assert seen == ["last"]


def test_the_header_is_decoded_once_and_the_first_of_several_values_counts() -> None:
    scope = {"headers": [(b"accept", b"a"), (b"x", b"\xe9"), (b"accept", b"b")]}
    headers = headers_of(scope)
    assert headers_of(scope) is headers
    assert (headers.get("accept"), headers.get("x"), headers.get("y"), headers.get("y", "z")) == ("a", "é", None, "z")
    assert (headers.getlist("accept"), headers.getlist("y")) == (["a", "b"], [])
