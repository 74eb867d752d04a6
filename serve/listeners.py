"""Ports, and uvicorn inside an event loop that it does not own. Called by `serve.app` only."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

# How long a connection may take to end after the server stopped listening.
CLOSE_SECONDS = 5


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


class HttpServer(uvicorn.Server):
    """uvicorn without signal handlers, access log and lifespan: the service has its own."""

    def __init__(self, app: ASGIApp) -> None:
        config = uvicorn.Config(
            app,
            http="h11",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=CLOSE_SECONDS,
        )
        super().__init__(config)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Captures none."""
        yield
