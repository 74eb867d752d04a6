"""Ports, and uvicorn inside an event loop that it does not own. Called by `serve.service` only.

From settings to what gRPC is told about the connections of a server.

What clients notice of it is described in `docs/clients.md`. Called by `serve.service`.

All metrics as text, written so that nobody waits for it: in pieces, with pauses in which others have Python's lock.

Written in one go it takes a core ten milliseconds, and a thread that computes in Python gives the lock away every five
of them only. Called by `serve.api.http_api`, in a thread of its own.
"""

import asyncio
import contextlib
import math
import socket
import time
from collections.abc import Callable, Iterator

import uvicorn
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from serve.api.auth import Tls
from serve.settings import ServeSettings

MAX_PENDING_CALLS = 1_000_000
# gRPC's options are C integers; the largest means never.
MAX_MILLISECONDS = 2**31 - 1

ChannelOptions = tuple[tuple[str, int], ...]


def channel_options(settings: ServeSettings) -> ChannelOptions:
    """Returns the options of a server."""
    longest_seconds = settings.grpc_max_connection_age_seconds
    options = {
        # A second server on the same port would silently take half of the connections.
        "grpc.so_reuseport": 0,
        "grpc.max_receive_message_length": settings.max_body_bytes,
        # Beyond these, gRPC itself would end calls as CANCELLED, unseen; the scheduler refuses with a reason.
        "grpc.server.max_pending_requests": MAX_PENDING_CALLS,
        "grpc.server.max_pending_requests_hard_limit": MAX_PENDING_CALLS,
        "grpc.keepalive_time_ms": _milliseconds(settings.grpc_keepalive_seconds),
        "grpc.keepalive_timeout_ms": _milliseconds(settings.grpc_keepalive_timeout_seconds),
        # Without it, an unanswered ping is waited for as long as any other: a minute.
        "grpc.http2.ping_timeout_ms": _milliseconds(settings.grpc_keepalive_timeout_seconds),
        # Connections without calls die as silently as others, and their pings carry no data.
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
        "grpc.http2.min_recv_ping_interval_without_data_ms": _milliseconds(settings.grpc_min_ping_interval_seconds),
    }
    if math.isfinite(longest_seconds):
        options["grpc.max_connection_age_ms"] = _milliseconds(longest_seconds)
        options["grpc.max_connection_age_grace_ms"] = _milliseconds(settings.grpc_max_connection_age_grace_seconds)
    if settings.grpc_max_calls is not None:
        options["grpc.max_concurrent_streams"] = settings.grpc_max_calls
    return tuple(options.items())


def _milliseconds(seconds: float) -> int:
    return min(math.ceil(seconds * 1000), MAX_MILLISECONDS)


# Longer than other threads need to wake up; short beside the seconds between two readings.
PAUSE_SECONDS = 0.001


class _One(Collector):
    """One family by itself."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Yields it."""
        yield self._family


def write_metrics(metrics: Collector, pause: Callable[[float], object] = time.sleep) -> bytes:
    """Returns what `prometheus_client.generate_latest` would, in the text format of Prometheus.

    Args:
        metrics: are read at once; only writing them down takes long.
        pause: waits for so many seconds, after each family.
    """
    pieces = []
    for family in list(metrics.collect()):
        pieces.append(generate_latest(_One(family)))
        pause(PAUSE_SECONDS)
    return b"".join(pieces)


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
