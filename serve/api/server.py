"""gRPC channel options, and the text format of the metrics.

Metrics are written in pieces with pauses, because one piece would hold the interpreter lock for ten milliseconds.
`docs/clients.md` describes how the channel options affect clients.
"""

import math
import time
from collections.abc import Callable, Iterator

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from serve.settings import ServeSettings

MAX_PENDING_CALLS = 1_000_000
# gRPC options are C integers; the largest value means never.
MAX_MILLISECONDS = 2**31 - 1

ChannelOptions = tuple[tuple[str, int], ...]


def channel_options(settings: ServeSettings) -> ChannelOptions:
    """Returns the gRPC options of the server."""
    longest_seconds = settings.grpc_max_connection_age_seconds
    options = {
        # Otherwise a second server could bind the same port and take half of the connections.
        "grpc.so_reuseport": 0,
        "grpc.max_receive_message_length": settings.max_body_bytes,
        # Beyond these limits gRPC ends calls as CANCELLED without a trace; the scheduler rejects them with a reason.
        "grpc.server.max_pending_requests": MAX_PENDING_CALLS,
        "grpc.server.max_pending_requests_hard_limit": MAX_PENDING_CALLS,
        "grpc.keepalive_time_ms": _milliseconds(settings.grpc_keepalive_seconds),
        "grpc.keepalive_timeout_ms": _milliseconds(settings.grpc_keepalive_timeout_seconds),
        # Otherwise an unanswered ping waits for the default of one minute.
        "grpc.http2.ping_timeout_ms": _milliseconds(settings.grpc_keepalive_timeout_seconds),
        # Connections without calls also need pings to detect that they are dead; such pings carry no data.
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
