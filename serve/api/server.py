"""The ports: gRPC channel options, uvicorn in an existing event loop, and the text format of the metrics.

Metrics are written in pieces with pauses, because one piece would hold the interpreter lock for ten milliseconds.
`docs/clients.md` describes how the channel options affect clients.
"""

import asyncio
import contextlib
import math
import resource
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

# Concurrent calls of a connection; clients queue more. A call without a message takes 15 to 25 kB.
MAX_STREAMS = 256
# Calls of all connections that the event loop has not seen yet; more if there are many rows. gRPC ends further ones as
# CANCELLED, without a reason and a retry delay. A longer queue would delay the calls of all clients during a flood.
MAX_PENDING_CALLS = 1024
# For each row that runs or waits.
PENDING_CALLS_PER_ROW = 2
MAX_CONNECTIONS = 1024
# Share of the open files of the process.
CONNECTIONS_PER_FILE = 0.25
# Time for the TLS handshake and the first frame.
HANDSHAKE_SECONDS = 10.0
# gRPC options are C integers; the largest value means never.
MAX_MILLISECONDS = 2**31 - 1

ChannelOptions = tuple[tuple[str, int], ...]


def channel_options(settings: ServeSettings) -> ChannelOptions:
    """Returns the gRPC options of the server."""
    longest_seconds = settings.grpc_max_connection_age_seconds
    pending_calls = max(MAX_PENDING_CALLS, PENDING_CALLS_PER_ROW * (settings.total_slots + settings.max_waiting))
    options = {
        # Otherwise a second server could bind the same port and take half of the connections.
        "grpc.so_reuseport": 0,
        "grpc.max_receive_message_length": settings.max_body_bytes,
        "grpc.max_concurrent_streams": MAX_STREAMS,
        "grpc.max_allowed_incoming_connections": _max_connections(),
        "grpc.server_handshake_timeout_ms": _milliseconds(HANDSHAKE_SECONDS),
        "grpc.server.max_pending_requests": pending_calls,
        "grpc.server.max_pending_requests_hard_limit": pending_calls,
        "grpc.keepalive_time_ms": _milliseconds(settings.grpc_keepalive_seconds),
        "grpc.keepalive_timeout_ms": _milliseconds(settings.grpc_keepalive_timeout_seconds),
        # Otherwise an unanswered ping waits for the default of one minute.
        "grpc.http2.ping_timeout_ms": _milliseconds(settings.grpc_keepalive_timeout_seconds),
        # Connections without calls also need pings to detect that they are dead; such pings carry no data.
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.max_pings_without_data": 0,
        "grpc.http2.min_ping_interval_without_data_ms": _milliseconds(settings.grpc_min_ping_interval_seconds),
    }
    if math.isfinite(longest_seconds):
        options["grpc.max_connection_age_ms"] = _milliseconds(longest_seconds)
        options["grpc.max_connection_age_grace_ms"] = _milliseconds(settings.grpc_max_connection_age_grace_seconds)
    return tuple(options.items())


def _max_connections() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = files == resource.RLIM_INFINITY
    return MAX_CONNECTIONS if unlimited else min(MAX_CONNECTIONS, int(files * CONNECTIONS_PER_FILE))


def _milliseconds(seconds: float) -> int:
    return min(math.ceil(seconds * 1000), MAX_MILLISECONDS)


# Longer than the wake-up of another thread; short compared with the scrape interval.
PAUSE_SECONDS = 0.001


class _SingleFamily(Collector):
    """Collects a single metric family."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        """Yields the family."""
        yield self._family


def write_metrics(metrics: Collector, pause: Callable[[float], object] = time.sleep) -> bytes:
    """Returns the metrics in Prometheus text format, like `prometheus_client.generate_latest`.

    Collects all metrics at once; calls `pause` after writing each family.
    """
    pieces = []
    for family in list(metrics.collect()):
        pieces.append(generate_latest(_SingleFamily(family)))
        pause(PAUSE_SECONDS)
    return b"".join(pieces)


# Maximum time for connections to close after the server stops listening.
CLOSE_SECONDS = 5
# Idle connections are kept longer than proxies and load balancers keep theirs, usually a minute. Otherwise a proxy may
# send a request over a connection that is being closed.
IDLE_SECONDS = 75
# Key of the request state: whether the client presented a certificate of a trusted authority.
CERTIFIED = "certified"


class ListenError(Exception):
    """A port cannot be bound; the message names it."""


def open_port(host: str, port: int) -> socket.socket:
    """Returns a listening socket; port 0 selects a free port.

    Raises:
        ListenError: if the port is in use or the address does not belong to this machine.
    """
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        problem, _, _ = str(error.strerror).partition(" (")  # the rest repeats the address
        raise ListenError(f"{host}:{port}: {problem}") from error
    # Accepted connections inherit it; asyncio sets it only on sockets that it creates. Without it, the second packet of
    # a response waits 40 ms for the delayed acknowledgment of the first.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


class TlsProtocol(H11Protocol):
    """HTTP/1.1 that stores in the request state whether the client presented a certificate."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Reads the client's certificate, which the handshake has verified."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, CERTIFIED: bool(transport.get_extra_info("peercert"))}


class HttpServer(uvicorn.Server):
    """uvicorn without signal handlers, access log and lifespan; the service has its own."""

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
        """Captures no signals."""
        yield
