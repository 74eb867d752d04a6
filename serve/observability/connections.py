"""Prometheus instruments of HTTP connections."""

from typing import Literal, get_args

from prometheus_client import CollectorRegistry, Counter, Gauge

CloseReason = Literal[
    "body_timeout",
    "evicted",
    "handshake",
    "header_timeout",
    "idle_timeout",
    "invalid",
    "pipelined",
    "send_timeout",
    "shutdown",
    "too_many",
    "too_many_per_address",
]


class ConnectionMetrics:
    """HTTP connections: how many are open, and why the server closed or refused some."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._open = Gauge("dragoman_http_connections", "Open HTTP connections.", registry=registry)
        closed = Counter(
            "dragoman_http_connections_closed",
            "HTTP connections that the server closed or refused, by reason.",
            ("reason",),
            registry=registry,
        )
        self._closed = {reason: closed.labels(reason) for reason in get_args(CloseReason)}

    def set_open(self, connections: int) -> None:
        """Sets the number of open connections."""
        self._open.set(connections)

    def count_closed(self, reason: CloseReason) -> None:
        """Counts a connection that the server closes or refuses."""
        self._closed[reason].inc()
