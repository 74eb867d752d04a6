"""Limits of HTTP connections, and the open connections within them.

A connection that waits for its client is closed once its time is over. One periodic sweep checks all of them. If all
slots are taken, a new connection takes the slot of the connection that has waited longest, in the order of `Wait`.
Thus neither half requests nor idle connections keep other clients out. A connection whose input has arrived but was not
read yet keeps its slot: there the client waits for the server.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, auto
from itertools import islice
from typing import Protocol

from dragoman.serve.host.client_address import network_of
from dragoman.serve.host.system import max_open_files
from dragoman.serve.observability.instruments import CloseReason, ConnectionMetrics

MAX_CONNECTIONS = 4096
# Answers that their clients have not read yet, requests that wait for them, and incomplete headers, of all connections.
MAX_HELD_BYTES = 64 << 20
# After a peak of this many connections, their memory is worth returning to the system.
PEAK_CONNECTIONS = 100
# Connections, of those that have waited longest, that are searched for one whose client has sent nothing new.
EVICTION_CANDIDATES = 16
# Input of a connection that is parsed before that of others.
INPUT_BYTES = 16 << 10


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
    return max(1, int(min(MAX_CONNECTIONS, max_open_files() / 2)))


class Wait(IntEnum):
    """For what a connection waits; the first ones give their slots first. Keys of numbers are found sooner."""

    CLOSE = auto()  # the client has had its last answer
    FIRST_REQUEST = auto()
    BODY = auto()
    NEXT_REQUEST = auto()  # or the client does not read its answer


class LimitedConnection(Protocol):
    """A connection as the limits need it."""

    def shutdown(self) -> None:
        """Closes the connection after the answer to its request."""

    def sweep(self, now_seconds: float) -> None:
        """Closes the connection if its client is too late."""

    def abort(self, reason: CloseReason) -> None:
        """Closes the connection at once."""

    def has_unread_input(self) -> bool:
        """Returns whether input has arrived that the server has not read."""


class StepQueue:
    """Steps of many connections: one per iteration of the event loop, so that everything else runs between them."""

    def __init__(self) -> None:
        self._waiting = deque[Callable[[], object]]()

    def add(self, step: Callable[[], object]) -> None:
        """Runs a step after those before it. Requires a running event loop."""
        self._waiting.append(step)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        try:
            self._waiting[0]()
        finally:
            self._waiting.popleft()
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._run)


class Connections:
    """The open connections of a server. Belongs to the event loop's thread.

    Attributes:
        input_buffer: for what any connection reads next.
        tasks: the requests that run, also those of closed connections.
        pipelined: starts of requests that were sent before the answer to another one.
    """

    def __init__(self, limits: HttpLimits, metrics: ConnectionMetrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self.input_buffer = memoryview(bytearray(INPUT_BYTES))
        self.handshakes, self.pipelined = StepQueue(), StepQueue()
        self._networks: dict[LimitedConnection, str] = {}
        self._counts = Counter[str]()
        # Connections in the order in which they began to wait; those whose requests are in progress are absent.
        self._waiting: dict[Wait, dict[LimitedConnection, None]] = {wait: {} for wait in Wait}
        self._waits: dict[LimitedConnection, Wait] = {}
        self._held: dict[LimitedConnection, int] = {}
        self._held_bytes = 0
        self._peak = 0
        self.tasks: dict[object, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._networks)

    @property
    def busy(self) -> bool:
        """Whether there are connections or running requests."""
        return bool(self._networks or self.tasks)

    def make_room(self, address: str) -> CloseReason | None:
        """Makes room for a connection from an address; returns the reason if it must be refused."""
        most = self.limits.connections_per_address
        if most is not None and self._counts[network_of(address)] >= most:
            return "too_many_per_address"
        if len(self._networks) >= self.limits.connections:
            candidates = list(islice(next(filter(None, self._waiting.values()), ()), EVICTION_CANDIDATES))
            if not candidates:
                return "too_many"
            silent = (candidate for candidate in candidates if not candidate.has_unread_input())
            oldest = next(silent, candidates[0])
            self.remove(oldest)
            oldest.abort("evicted")
        return None

    def add(self, connection: LimitedConnection, address: str) -> None:
        """Adds a new connection."""
        network = "" if self.limits.connections_per_address is None else network_of(address)
        self._networks[connection] = network
        self._peak = max(self._peak, len(self._networks))
        self._counts[network] += 1
        self.set_waiting(connection, Wait.FIRST_REQUEST)
        self.metrics.open.set(len(self._networks))

    def remove(self, connection: LimitedConnection) -> None:
        """Removes a closed connection; does nothing if it was removed before."""
        network = self._networks.pop(connection, None)
        if network is None:
            return
        self._counts[network] -= 1
        if not self._counts[network]:
            del self._counts[network]
        self.hold(connection, 0)
        self.set_waiting(connection, None)
        self.metrics.open.set(len(self._networks))

    def set_waiting(self, connection: LimitedConnection, wait: Wait | None) -> None:
        """Notes for what a connection waits; None: its request is in progress."""
        before = self._waits.pop(connection, None)
        if before is not None and before is not wait:
            del self._waiting[before][connection]
        if wait is not None and connection in self._networks:
            self._waits[connection] = wait
            self._waiting[wait][connection] = None

    def hold(self, connection: LimitedConnection, held_bytes: int) -> None:
        """Notes the size of what waits on a connection; beyond the limit, aborts the connections with most."""
        self._held_bytes -= self._held.pop(connection, 0)
        if held_bytes and connection in self._networks:
            self._held[connection] = held_bytes
            self._held_bytes += held_bytes
        while self._held_bytes > MAX_HELD_BYTES:
            most = max(self._held, key=self._held.__getitem__)
            self._held_bytes -= self._held.pop(most)
            most.abort("send_timeout")

    def sweep(self) -> None:
        """Closes the connections whose clients are too late. Must be called periodically."""
        now_seconds = asyncio.get_running_loop().time()
        for connection in tuple(self._networks):
            connection.sweep(now_seconds)

    def end_peak(self) -> bool:
        """Returns whether most connections of a peak have ended since the last peak."""
        ended = self._peak >= PEAK_CONNECTIONS and len(self._networks) <= self._peak / 2
        if ended:
            self._peak = len(self._networks)
        return ended

    def shut_down(self) -> None:
        """Closes every connection after the answer to its request."""
        for connection in tuple(self._networks):
            connection.shutdown()

    def abort(self) -> None:
        """Closes every connection at once."""
        for connection in tuple(self._networks):
            connection.abort("shutdown")
