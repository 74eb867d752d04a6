"""Ports, and uvicorn inside an event loop that it does not own. Called by `serve.service` only."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from serve.api.auth import Tls

# How long a connection may take to end after the server stopped listening.
CLOSE_SECONDS = 5
# How long a connection is kept that nobody uses: longer than proxies and load balancers keep theirs, most often for a
# minute, lest one of them sends a request down a connection that is being closed.
IDLE_SECONDS = 75
# What of a request's state tells whether its connection showed a certificate that an authority of the server signed.
CERTIFIED = "certified"


class ListenError(Exception):
    """A port cannot be had; the message names it."""


def open_port(host: str, port: int) -> socket.socket:
    """Returns a listening socket; port 0 means any free one.

    Raises:
        ListenError: if the port is taken or the address is not this machine's.
    """
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        problem, _, _ = str(error.strerror).partition(" (")  # what follows repeats the address
        raise ListenError(f"{host}:{port}: {problem}") from error
    # Accepted connections inherit it. asyncio sets it only on sockets of its own, and without it the second packet of
    # an answer waits for the delayed acknowledgement of the first: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class TlsProtocol(H11Protocol):
    """HTTP/1.1 that tells whether the client showed a certificate."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Looks at the client's certificate, which the handshake has checked."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, CERTIFIED: bool(transport.get_extra_info("peercert"))}


class HttpServer(uvicorn.Server):
    """uvicorn without signal handlers, access log and lifespan: the service has its own."""

    def __init__(self, app: ASGIApp, tls: Tls | None = None) -> None:
        config = uvicorn.Config(
            app,
            http="h11" if tls is None else TlsProtocol,
            ssl_context_factory=None if tls is None else lambda *_: tls.http_context(),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=CLOSE_SECONDS,
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
        yield
