"""Limits of HTTP connections, and the open connections within them.

A connection that waits for its client is closed once its time is over. One periodic sweep checks all of them. If all
places are taken, a new connection takes the place of the connection that has waited longest, first among those that
have not sent a complete request. Thus neither half headers nor idle connections keep other clients out.
"""

import asyncio
import ipaddress
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from serve.observability.metrics import CloseReason, ConnectionMetrics
from serve.system import most_open_files

MAX_CONNECTIONS = 4096
# Answers in memory that their clients have not read yet, of all connections.
MAX_UNSENT_BYTES = 64 << 20
# An owner of IPv6 addresses has at least a network of this size.
IPV6_PREFIX = 64


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of the connections of one server.

    Attributes:
        connections: open connections, those in a TLS handshake included.
        connections_per_address: open connections of an IPv4 address or an IPv6 /64 network; None: no limit.
        header_seconds: from a new connection or the first byte of a request to its complete header; also for a TLS
            handshake.
        body_seconds: to receive a body; every `body_bytes_per_second` that arrived add a second.
        send_seconds: without progress in sending an answer. The default is that of proxies (nginx, send_timeout).
        idle_seconds: between two requests. Proxies keep idle connections for a minute; if the server kept them shorter,
            a proxy could send a request over a connection that is being closed.
        linger_seconds: in which input is discarded before a connection closes. Without it, input in transit would
            reset the connection, and the client might lose the answer.
        sweep_seconds: interval of the checks.
    """

    connections: int = MAX_CONNECTIONS
    connections_per_address: int | None = None
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    body_bytes_per_second: int = 16 << 10
    send_seconds: float = 60.0
    idle_seconds: float = 75.0
    linger_seconds: float = 1.0
    sweep_seconds: float = 1.0


def affordable_connections() -> int:
    """Returns the number of HTTP connections: at most half of the open files of the process.

    The other half is for gRPC connections, files and logs.
    """
    return max(1, int(min(MAX_CONNECTIONS, most_open_files() / 2)))


class LimitedConnection(Protocol):
    """A connection as the limits need it; `unsent_bytes` is the size of its answers that are not sent."""

    unsent_bytes: int

    def shutdown(self) -> None:
        """Closes the connection after the answer to its request."""

    def sweep(self, now_seconds: float) -> None:
        """Closes the connection if its client is too late."""

    def abort(self, reason: CloseReason) -> None:
        """Closes the connection at once."""


class Connections:
    """The open connections of a server. Belongs to the event loop's thread."""

    def __init__(self, limits: HttpLimits, metrics: ConnectionMetrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self._networks: dict[LimitedConnection, str] = {}
        self._counts = Counter[str]()
        # In the order in which they began to wait; without those whose requests are in progress.
        self._unproven: dict[LimitedConnection, None] = {}
        self._idle: dict[LimitedConnection, None] = {}

    def __len__(self) -> int:
        return len(self._networks)

    def make_room(self, address: str) -> CloseReason | None:
        """Makes room for a connection from an address; returns the reason if it must be refused."""
        most = self.limits.connections_per_address
        if most is not None and self._counts[_network(address)] >= most:
            return "too_many_per_address"
        if len(self._networks) >= self.limits.connections:
            oldest = next(chain(self._unproven, self._idle), None)
            if oldest is None:
                return "too_many"
            self.remove(oldest)
            oldest.abort("evicted")
        return None

    def add(self, connection: LimitedConnection, address: str) -> None:
        """Adds a new connection."""
        network = "" if self.limits.connections_per_address is None else _network(address)
        self._networks[connection] = network
        self._counts[network] += 1
        self._unproven[connection] = None
        self.metrics.set_open(len(self._networks))

    def remove(self, connection: LimitedConnection) -> None:
        """Removes a closed connection; does nothing if it was removed before."""
        network = self._networks.pop(connection, None)
        if network is None:
            return
        self._counts[network] -= 1
        if not self._counts[network]:
            del self._counts[network]
        self.set_busy(connection)
        self.metrics.set_open(len(self._networks))

    def set_busy(self, connection: LimitedConnection) -> None:
        """Marks a connection whose request is in progress."""
        self._unproven.pop(connection, None)
        self._idle.pop(connection, None)

    def set_idle(self, connection: LimitedConnection) -> None:
        """Marks a connection that waits for the next request."""
        if connection in self._networks:
            self._idle[connection] = None

    def sweep(self) -> None:
        """Closes the connections whose clients are too late. Must be called periodically."""
        now_seconds = asyncio.get_running_loop().time()
        for connection in tuple(self._networks):
            connection.sweep(now_seconds)
        self._bound_unsent()

    def shut_down(self) -> None:
        """Closes every connection after the answer to its request."""
        for connection in tuple(self._networks):
            connection.shutdown()

    def abort(self) -> None:
        """Closes every connection at once."""
        for connection in tuple(self._networks):
            connection.abort("shutdown")

    def _bound_unsent(self) -> None:
        """Aborts the connections with most unsent bytes until the rest fits."""
        excess = sum(each.unsent_bytes for each in self._networks) - MAX_UNSENT_BYTES
        if excess <= 0:
            return
        for connection in sorted(self._networks, key=lambda each: each.unsent_bytes, reverse=True):
            if excess <= 0:
                return
            excess -= connection.unsent_bytes
            connection.abort("send_timeout")


def _network(address: str) -> str:
    """Returns what counts as one address: an IPv4 address, or the network of an IPv6 address."""
    if ":" not in address:
        return address
    parsed = ipaddress.IPv6Address(address.partition("%")[0])
    mapped = parsed.ipv4_mapped
    return str(mapped or ipaddress.IPv6Network((int(parsed), IPV6_PREFIX), strict=False))
