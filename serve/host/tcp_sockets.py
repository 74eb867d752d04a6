"""TCP sockets as Linux sees them: the accepted connections of a port, what they have received, filters of packets."""

import ctypes
import errno
import fcntl
import os
import socket
import stat
import struct
import sys
import termios
from collections.abc import Collection, Iterator
from contextlib import suppress

from dragoman.serve.host.client_address import SocketAddress

# Constants of Linux.
_SO_ATTACH_FILTER = 26
_BYTES_RECEIVED = struct.Struct("128xQ")  # in the structure tcp_info
_BACKLOG = struct.Struct("24xI")  # in the tcp_info of a listening socket
_DESCRIPTORS = "/proc/self/fd"
# Programs of classic BPF. A result of 0 drops a packet.
DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)
# Load the flags of the TCP header; with SYN, drop the packet.
DROP_SYN = struct.pack("HBBI" * 4, 0x30, 0, 0, 13, 0x45, 0, 1, 0x02, 0x06, 0, 0, 0, 0x06, 0, 0, 0xFFFFFFFF)


def filter_packets(receiver: socket.socket, program: bytes) -> None:
    """Lets the kernel drop packets before TCP gets them; raises OSError if the system has no such filters."""
    instructions = ctypes.create_string_buffer(program)
    option = struct.pack("HP", len(program) // 8, ctypes.addressof(instructions))
    receiver.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, option)


def begin_no_connection(listening: socket.socket) -> None:
    """Drops the first packets of new connections, whose clients send them again: so no connection completes (Linux).

    Otherwise a connection could complete after the last `accept`, and closing the socket would reset it.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            filter_packets(listening, DROP_SYN)


def received_bytes(connection: socket.socket) -> int:
    """Returns how many bytes a connection has received since it began, also those that are unread."""
    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_RECEIVED.size)
    # Some sandboxes return less.
    (received,) = _BYTES_RECEIVED.unpack(information.ljust(_BYTES_RECEIVED.size, b"\0"))
    return int(received)


def count_unread_bytes(connection: socket.socket) -> int:
    """Returns how many bytes have arrived and are unread; 0 for a closed socket."""
    count = struct.pack("i", 0)
    try:
        return int.from_bytes(fcntl.ioctl(connection, termios.FIONREAD, count), sys.byteorder)
    except (OSError, ValueError):
        return 0


def backlog_of(listening: socket.socket) -> int:
    """Returns how many completed connections wait until the process accepts them."""
    information = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BACKLOG.size)
    (backlog,) = _BACKLOG.unpack(information.ljust(_BACKLOG.size, b"\0"))
    return int(backlog)


class AcceptedSockets:
    """Accepted connections; `backlog` are those that waited in the last iteration, None: no socket listens."""

    def __init__(self, port: int) -> None:
        self.backlog: int | None = 0
        self._completes = True
        self._port = port
        self._others = set[int]()

    def shut_down(self, numbers: Collection[int] | None = None) -> set[int]:
        """Ends connections by their numbers, or all; gRPC closes them when it reads the end. Returns the numbers."""
        ended = set()
        for number, _, connection in self:
            if numbers is None or number in numbers:
                ended.add(number)
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        return ended

    def begin_no_connection(self) -> None:
        """Lets no new connection complete, as `begin_no_connection`."""
        self._completes = False
        for _ in self:  # finds the listening socket
            pass

    def __iter__(self) -> Iterator[tuple[int, SocketAddress, socket.socket]]:
        """Yields a number of no other open socket, the client's address, and a copy that is open until the next one."""
        backlog: int | None = None
        try:
            for number, copy in self._copies():
                if (address := _peer(copy)) is not None:
                    yield number, address, copy
                elif copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    backlog = max(backlog or 0, backlog_of(copy))
                    if not self._completes:
                        begin_no_connection(copy)
        except OSError:  # without a free descriptor, nothing is known
            backlog = 0
        self.backlog = backlog

    def _copies(self) -> Iterator[tuple[int, socket.socket]]:
        """Yields number and copy of each socket that is bound to the port."""
        others, self._others = self._others, set()
        for entry in list(os.scandir(_DESCRIPTORS)):
            try:
                status = os.fstat(int(entry.name))
                if not stat.S_ISSOCK(status.st_mode):
                    continue
                number = status.st_ino
                if number in others:
                    self._others.add(number)
                    continue
                # A copy, because a thread of gRPC may close the socket, and the system reuse its descriptor.
                with socket.socket(fileno=os.dup(int(entry.name))) as copy:
                    if copy.family in (socket.AF_INET, socket.AF_INET6) and copy.getsockname()[1] == self._port:
                        yield number, copy
                    else:
                        self._others.add(number)
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise
                # Otherwise, it was closed meanwhile.


def _peer(connection: socket.socket) -> SocketAddress | None:
    """Returns the address of the client; None for a socket that listens or whose connection has ended."""
    try:
        address: SocketAddress = connection.getpeername()
    except OSError:
        return None
    return address
