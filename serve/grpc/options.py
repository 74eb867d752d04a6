"""The gRPC channel options of the server; `docs/clients.md` describes how they affect clients."""

import math

from dragoman.serve.host.system import max_open_files
from dragoman.serve.settings import ServeSettings

# Concurrent calls of a connection; clients queue more. A call without a message takes 15 to 25 kB. A call of another
# connection may wait for all of them. RFC 9113 advises at least 100.
MAX_STREAMS = 100
# Ended calls of a connection that gRPC has not released yet. A client that got its answers may start as many new ones
# before. gRPC would by default count both among the concurrent calls and refuse the new ones.
MAX_UNRELEASED_CALLS = MAX_STREAMS
# Calls of a method that the event loop has not seen yet; more if there are many rows. gRPC ends further ones as
# CANCELLED, without a reason and a retry delay. A longer queue would delay the calls of all clients during a flood.
MAX_PENDING_CALLS = 1024
# Calls for each row that runs or waits.
PENDING_CALLS_PER_ROW = 2
# Idle connections; beyond, some are closed (`dragoman.serve.grpc.connections`).
MAX_IDLE_CONNECTIONS = 1024
# gRPC closes further connections at once. The room for those that are busy, and for idle ones until they are closed.
MAX_CONNECTIONS = 4 * MAX_IDLE_CONNECTIONS
# Share of the open files of the process.
CONNECTIONS_PER_FILE = 0.25
# Time for the TLS handshake and the first frame.
HANDSHAKE_SECONDS = 10.0
# gRPC options are C integers; the largest value means never.
MAX_MILLISECONDS = 2**31 - 1

ChannelOptions = tuple[tuple[str, int], ...]


def channel_options(settings: ServeSettings, *, shared: bool = False) -> ChannelOptions:
    """Returns the gRPC options of the server; `shared`: other processes of the service listen on the same port."""
    max_seconds = settings.grpc_max_connection_age_seconds
    pending_calls = max(MAX_PENDING_CALLS, PENDING_CALLS_PER_ROW * (settings.total_slots + settings.max_waiting))
    options = {
        # Otherwise a second server could bind the same port and take half of the connections.
        "grpc.so_reuseport": int(shared),
        "grpc.max_receive_message_length": settings.max_body_bytes,
        "grpc.max_concurrent_streams": MAX_STREAMS,
        "grpc.http2.max_deallocating_streams": MAX_UNRELEASED_CALLS,
        "grpc.max_allowed_incoming_connections": max_connections(),
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
        # gRPC would close a connection with too many pings, but only once all answers are written. Until then, each
        # ping would cost it far more than an answer.
        "grpc.http2.max_ping_strikes": 0,
    }
    if math.isfinite(max_seconds):
        options["grpc.max_connection_age_ms"] = _milliseconds(max_seconds)
        options["grpc.max_connection_age_grace_ms"] = _milliseconds(settings.grpc_max_connection_age_grace_seconds)
    return tuple(options.items())


def max_connections() -> int:
    """Returns how many connections the process can afford."""
    return max(1, int(min(MAX_CONNECTIONS, max_open_files() * CONNECTIONS_PER_FILE)))


def max_idle_connections() -> int:
    """Returns how many idle connections stay open: half of all if files are scarce."""
    return max(1, min(MAX_IDLE_CONNECTIONS, max_connections() // 2))


def _milliseconds(seconds: float) -> int:
    return min(math.ceil(seconds * 1000), MAX_MILLISECONDS)
