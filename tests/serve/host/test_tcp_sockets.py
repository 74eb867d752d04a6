"""TCP sockets as Linux sees them."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.serve.host.tcp_sockets import DROP_ALL, AcceptedSockets, filter_packets, received_bytes
from tests.support.live import WAIT_SECONDS, eventually

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the module is for Linux")

HOST = "127.0.0.1"


@pytest.fixture(name="pair")
def _pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yields a client's socket and the accepted one."""
    with (
        socket.create_server((HOST, 0)) as listener,
        socket.create_connection(listener.getsockname(), WAIT_SECONDS) as client,
        listener.accept()[0] as accepted,
    ):
        yield client, accepted


def test_received_bytes_count_whether_they_are_read_or_not(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    client.sendall(bytes(1000))
    eventually(lambda: received_bytes(accepted) == 1000)
    accepted.recv(400)
    client.sendall(bytes(10))
    eventually(lambda: received_bytes(accepted) == 1010)


def test_dropped_packets_do_not_arrive(pair: tuple[socket.socket, socket.socket]) -> None:
    """The client learns nothing: its connection stays open."""
    client, accepted = pair
    client.sendall(b"before")
    eventually(lambda: received_bytes(accepted) == len(b"before"))
    filter_packets(accepted, DROP_ALL)
    client.sendall(b"after")
    accepted.sendall(b"answer")
    assert client.recv(100) == b"answer"
    assert received_bytes(accepted) == len(b"before")


def test_only_accepted_connections_of_the_port_are_found(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    sockets = AcceptedSockets(accepted.getsockname()[1])
    before = len(list(Path("/proc/self/fd").iterdir()))
    one, other = socket.socketpair()
    with socket.create_server((HOST, 0)), one, other:
        for _ in range(2):
            ((number, address, connection),) = sockets
            assert (number, address) == (os.fstat(accepted.fileno()).st_ino, client.getsockname())
            assert connection.fileno() == -1  # the copy is closed
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    accepted.close()
    assert list(sockets) == []
