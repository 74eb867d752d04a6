"""Ignores gRPC connections that send far more than their calls need, and closes idle ones beyond a fair share.

Those that send too much are floods of pings or of endless headers.

gRPC's core reads all frames of a connection, without a limit. The server compares what the kernel has received on each
connection with its calls and their messages. From a connection beyond the limit, the kernel drops all packets: if the
server closed it, the client would connect again at once. gRPC closes it when its own ping gets no answer.

A connection is idle if all of its calls wait for the client. If too many are idle, the client with the most of them
loses those that have been idle the longest. gRPC reads the end of the connection, as if the client had closed it.
"""

import asyncio
import heapq
import socket
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field

import structlog

from dragoman.serve.grpc.pace import RefusalPace
from dragoman.serve.host.client_address import host_of, network_of, peer_of
from dragoman.serve.host.system import return_memory, run_in_daemon_thread
from dragoman.serve.host.tcp_sockets import DROP_ALL, AcceptedSockets, filter_packets, received_bytes

# What a connection may send without calls: once, more than the first 64 KiB of 100 messages, whose calls the server
# does not see yet; and all the time, such as pings, window updates and calls of unknown methods.
SPARE_BYTES = 16 << 20
SPARE_BYTES_PER_SECOND = 256 << 10
# The header of a call, and the part of its message that arrives also if the server never reads it.
CALL_BYTES = 128 << 10
# Frames and TLS of a message, besides those that `CALL_BYTES` covers.
MESSAGE_BYTES = 64
# Bytes arrive before the server sees their call. This many looks in a row find a connection beyond its limit before it
# is ignored.
LOOKS = 10
LOOKS_WITHOUT_CALLS = 2
# Between two looks at all connections: short, because a flood uses the CPUs meanwhile. Looks take at most a fiftieth of
# the time of a CPU.
PAUSE_SECONDS = 0.1
LOOK_SHARE = 0.02
# The share while connections are idle beyond their number, so that new ones find room.
CROWDED_LOOK_SHARE = 0.2
# gRPC accepts a connection at once if a descriptor is free. After such a time without, it has given up its socket. A
# process that stood still did not accept either: between two looks, at most so much time counts.
STALLED_SECONDS = 20.0
MAX_LOOK_SECONDS = 1.0
# gRPC accepts a connection that the system has completed within this time.
CLOSE_STEP_SECONDS = 0.01

_log = structlog.get_logger("dragoman")


@dataclass(slots=True, eq=False)
class Connection:
    """What a client has sent over a connection.

    Attributes:
        peer: address and port of the client, as gRPC writes them.
        pace: of the refusals of all connections.
        network: what counts as one client.
        open_calls: calls that have not ended.
        waiting_calls: open calls that wait for the client alone.
        used_seconds: time of the last begin or end of a call, or of the connection.
        unread_bytes: responses of unary calls that gRPC has not sent.
        ignored: whether the kernel drops its packets.
    """

    peer: str
    pace: RefusalPace = field(default_factory=RefusalPace)
    network: str = field(init=False)
    open_calls: int = 0
    waiting_calls: int = 0
    used_seconds: float = field(default_factory=time.monotonic)
    unread_bytes: int = 0
    ignored: bool = False
    _received_bytes: int | None = None  # None: not looked at yet
    _explained_bytes: int = 0
    _spent_bytes: float = 0.0
    _looks: int = 0  # in a row that found it beyond its limit
    _max_looks: int = LOOKS_WITHOUT_CALLS

    def __post_init__(self) -> None:
        self.network = network_of(host_of(self.peer))

    @property
    def idle(self) -> bool:
        """Whether no call needs the connection before its client sends more."""
        return self.open_calls <= self.waiting_calls

    def begin_call(self) -> None:
        """Counts a call until `end_call`."""
        self._max_looks = LOOKS
        self.open_calls += 1
        self.used_seconds = time.monotonic()
        self._explained_bytes += CALL_BYTES

    def end_call(self) -> None:
        """Ends the count of a call."""
        self.open_calls -= 1
        self.used_seconds = time.monotonic()

    def count_message(self, size_bytes: int) -> None:
        """Counts a message that the server has read."""
        self._explained_bytes += size_bytes + MESSAGE_BYTES

    def exceeds(self, received_bytes: int, seconds: float, max_message_bytes: int) -> bool:
        """Returns whether the client is beyond its limit, now and at the looks before.

        Args:
            received_bytes: since the connection began.
            seconds: since the last look.
            max_message_bytes: of a message, of which a part may have arrived.
        """
        if self._received_bytes is not None:
            new_bytes = received_bytes - self._received_bytes - self._explained_bytes
            self._spent_bytes = max(0.0, self._spent_bytes + new_bytes - SPARE_BYTES_PER_SECOND * seconds)
        self._received_bytes, self._explained_bytes = received_bytes, 0
        beyond = self._spent_bytes > SPARE_BYTES + self.open_calls * max_message_bytes
        self._looks = self._looks + 1 if beyond else 0
        return self._looks >= self._max_looks


# The connection of the running call; None: no call runs.
CONNECTION: ContextVar[Connection | None] = ContextVar("connection", default=None)


class Connections:
    """The open connections of the gRPC server. Belongs to the event loop's thread.

    Attributes:
        listening: whether a socket of the server accepts connections.
    """

    def __init__(self, max_message_bytes: int, max_idle: int, count_ignored: Callable[[], object]) -> None:
        """Starts without connections.

        Args:
            max_idle: idle connections that stay open.
            count_ignored: called for each connection that is ignored.
        """
        self._max_message_bytes = max_message_bytes
        self._max_idle = max_idle
        self._count_ignored = count_ignored
        self.listening = True
        self._stalled_seconds = 0.0  # since a connection was accepted, while some wait
        self._pace = RefusalPace()
        self._sockets: AcceptedSockets | None = None
        self._by_peer = dict[str, Connection]()
        self._by_socket = dict[int, Connection]()

    def of_call(self, peer: str) -> Connection:
        """Returns the connection of a call, given what gRPC calls its peer."""
        connection = self._by_peer.get(peer)
        if connection is None:
            connection = self._by_peer[peer] = Connection(peer, self._pace)
        return connection

    def begin_none(self) -> None:
        """Lets no new connection complete."""
        if self._sockets is not None:
            self._sockets.begin_no_connection()

    async def close(self) -> None:
        """Closes all connections, also those that gRPC accepts meanwhile, if the system shows them."""
        closed = set[int]()
        while self._sockets is not None and (new := self._sockets.shut_down() - closed):
            closed |= new
            await asyncio.sleep(CLOSE_STEP_SECONDS)

    async def watch(self, port: int) -> None:
        """Looks at the connections to a port until it is canceled. Other systems than Linux show none of them."""
        self._sockets = sockets = AcceptedSockets(port)
        last_seconds = time.monotonic()
        while True:
            now_seconds = time.monotonic()
            known = self._by_socket.keys()
            changed = self._look(sockets, now_seconds - last_seconds)
            accepted = self._by_socket.keys() - known
            self._note_listener(sockets.backlog, now_seconds - last_seconds, accepting=bool(accepted))
            closed = self._make_room(sockets)
            last_seconds = now_seconds
            share = CROWDED_LOOK_SHARE if closed else LOOK_SHARE
            await asyncio.sleep(max(PAUSE_SECONDS, (time.monotonic() - now_seconds) / share))
            if changed:  # gRPC has read the rest, or closed the connection
                await run_in_daemon_thread(return_memory)

    def _note_listener(self, backlog: int | None, seconds: float, *, accepting: bool) -> None:
        """Notes whether a socket listens, and whether gRPC accepts the connections that wait.

        Args:
            backlog: connections that wait; None: no socket listens.
            seconds: since the last look.
            accepting: whether connections were accepted since then.
        """
        stalled = bool(backlog) and not accepting
        self._stalled_seconds = self._stalled_seconds + min(seconds, MAX_LOOK_SECONDS) if stalled else 0.0
        self.listening = backlog is not None and self._stalled_seconds < STALLED_SECONDS

    def _make_room(self, sockets: AcceptedSockets) -> int:
        """Closes idle connections beyond their number; returns how many."""
        idle = {item: number for number, item in self._by_socket.items() if item.idle and not item.ignored}
        excess = len(idle) - self._max_idle
        if excess <= 0:
            return 0
        closed = choose_idle(idle, excess)
        _log.warning("grpc_connections_closed", count=excess, networks=len({item.network for item in closed}))
        sockets.shut_down({idle[item] for item in closed})
        return excess

    def _look(self, sockets: AcceptedSockets, seconds: float) -> bool:
        """Ignores the connections beyond their limits; returns whether others are ignored than before."""
        current, ignored = dict[int, Connection](), self._ignored()
        for number, address, accepted in sockets:
            connection = current[number] = self._by_socket.get(number) or self._of_socket(peer_of(address))
            if not connection.ignored and connection.exceeds(
                received_bytes(accepted), seconds, self._max_message_bytes
            ):
                self._ignore(connection, accepted)
        self._by_socket = current
        # Calls may end after their connection.
        used = (value for value in self._by_peer.values() if value.open_calls or value.unread_bytes)
        self._by_peer = {item.peer: item for item in (*used, *current.values())}
        return self._ignored() != ignored

    def _ignored(self) -> set[int]:
        return {number for number, item in self._by_socket.items() if item.ignored}

    def _of_socket(self, peer: str) -> Connection:
        """Returns the connection of a socket that was not seen before."""
        earlier = self._by_peer.get(peer)
        # A client may use the port of an earlier connection again.
        return Connection(peer, self._pace) if earlier is None or earlier in self._by_socket.values() else earlier

    def _ignore(self, connection: Connection, accepted: socket.socket) -> None:
        connection.ignored = True
        with suppress(OSError):
            filter_packets(accepted, DROP_ALL)
        self._count_ignored()
        _log.warning("grpc_connection_ignored", peer=connection.peer)


def choose_idle(idle: Iterable[Connection], count: int) -> list[Connection]:
    """Returns connections to close: each from the network that has the most, the one that is idle the longest."""
    by_network = defaultdict[str, deque[Connection]](deque)
    for connection in sorted(idle, key=lambda item: item.used_seconds):
        by_network[connection.network].append(connection)
    largest = [(-len(connections), network) for network, connections in by_network.items()]
    heapq.heapify(largest)
    chosen = []
    for _ in range(count):
        _, network = largest[0]
        chosen.append(by_network[network].popleft())
        heapq.heapreplace(largest, (-len(by_network[network]), network))
    return chosen
