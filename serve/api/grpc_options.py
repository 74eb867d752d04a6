"""From settings to what gRPC is told about the connections of a server.

What clients notice of it is described in `docs/clients.md`. Called by `serve.service`.
"""

import math

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
