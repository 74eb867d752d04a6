"""Which gRPC connections send more than their calls need; `test_limits.py` floods a server over such ones."""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.grpc.connections import (
    CALL_BYTES,
    LOOKS,
    LOOKS_WITHOUT_CALLS,
    SPARE_BYTES,
    SPARE_BYTES_PER_SECOND,
    Connection,
    Connections,
    choose_idle,
)
from tests.support.attacks.link import HOST
from tests.support.live import WAIT_SECONDS

MAX_MESSAGE_BYTES = 2 << 20
PEER = "ipv4:192.0.2.1:1000"


class Client:
    """A connection, and what its client has sent."""

    def __init__(self) -> None:
        self.connection = Connection(PEER)
        self.sent_bytes = 100
        assert not self.exceeds()

    def send(self, size_bytes: int) -> None:
        self.sent_bytes += size_bytes

    def exceeds(self, seconds: float = 0.0) -> bool:
        return self.connection.exceeds(self.sent_bytes, seconds, MAX_MESSAGE_BYTES)


def test_a_connection_may_send_some_bytes_without_calls_and_more_with_time() -> None:
    client = Client()
    client.send(SPARE_BYTES)
    assert not client.exceeds()
    for _ in range(100):
        client.send(SPARE_BYTES_PER_SECOND)
        assert not client.exceeds(seconds=1.0)
    client.send(1)
    assert [client.exceeds() for _ in range(LOOKS_WITHOUT_CALLS)] == [False] * (LOOKS_WITHOUT_CALLS - 1) + [True]


def test_what_a_connection_sent_before_the_first_look_does_not_count() -> None:
    connection = Connection(PEER)
    assert not any(connection.exceeds(10 * SPARE_BYTES, 0.0, MAX_MESSAGE_BYTES) for _ in range(2 * LOOKS))


def test_bytes_may_arrive_before_the_server_sees_their_call() -> None:
    client = Client()
    for _ in range(3):
        client.connection.begin_call()
        client.connection.end_call()
        client.send(2 * SPARE_BYTES)
        assert not any(client.exceeds() for _ in range(LOOKS - 1))
        client.connection.count_message(2 * SPARE_BYTES)
        assert not client.exceeds()
    client.send(2 * SPARE_BYTES)
    assert [client.exceeds() for _ in range(LOOKS)] == [False] * (LOOKS - 1) + [True]


def test_an_idle_time_saves_nothing() -> None:
    client = Client()
    assert not client.exceeds(seconds=1e6)
    client.send(SPARE_BYTES + 1)
    assert any(client.exceeds() for _ in range(LOOKS_WITHOUT_CALLS))


def test_each_open_call_may_send_a_part_of_a_message() -> None:
    client = Client()
    client.connection.begin_call()
    client.send(CALL_BYTES + SPARE_BYTES + MAX_MESSAGE_BYTES)
    assert not any(client.exceeds() for _ in range(2 * LOOKS))
    client.connection.end_call()
    assert any(client.exceeds() for _ in range(LOOKS))


CALLS = st.lists(
    st.tuples(st.integers(0, MAX_MESSAGE_BYTES), st.integers(1, 16 << 10), st.integers(1, 300)), max_size=20
)


@given(CALLS, st.randoms(use_true_random=False))
def test_messages_in_any_order_never_exceed_the_limit(calls: list[tuple[int, int, int]], random: Random) -> None:
    """The bytes of a call: its header, then its message in pieces, with frames around them."""
    client, waiting = Client(), list[Callable[[], object]]()
    for message_bytes, header_bytes, frames in calls:
        client.send(header_bytes + 9 * frames)
        client.connection.begin_call()

        def finish(size_bytes: int = message_bytes) -> None:
            client.connection.count_message(size_bytes)
            client.connection.end_call()

        client.send(message_bytes)
        waiting.append(finish)
        random.shuffle(waiting)
        while len(waiting) > random.randrange(20):
            waiting.pop()()
        assert not any(client.exceeds() for _ in range(LOOKS_WITHOUT_CALLS))


@pytest.mark.parametrize("number", [1, 2])
def test_the_network_of_a_connection_is_that_of_its_client(number: int) -> None:
    assert Connection(f"ipv4:192.0.2.{number}:1000").network == f"192.0.2.{number}"
    assert Connection(f"ipv6:%5B2001:db8::{number}%5D:1000").network == "2001:db8::/64"


def idle_connections(**counts: int) -> list[Connection]:
    """Returns as many idle connections of each network, by age; names are last numbers of addresses, as in `n1`."""
    connections = []
    for name, count in counts.items():
        for number in range(count):
            connection = Connection(f"ipv4:192.0.2.{name[1:]}:{1000 + number}")
            connection.used_seconds = number
            connections.append(connection)
    return connections


def chosen(idle: list[Connection], count: int) -> list[tuple[str, float]]:
    """Returns network and age of the connections to close."""
    return [(item.network.rpartition(".")[2], item.used_seconds) for item in choose_idle(idle, count)]


def test_the_network_with_the_most_idle_connections_loses_the_oldest() -> None:
    assert chosen(idle_connections(n1=5, n2=2, n3=1), 3) == [("1", 0), ("1", 1), ("1", 2)]


def test_equal_networks_lose_in_turn() -> None:
    assert sorted(chosen(idle_connections(n1=3, n2=3, n3=1), 4)) == [("1", 0), ("1", 1), ("2", 0), ("2", 1)]


@given(st.lists(st.integers(1, 12), min_size=1, max_size=6), st.integers(0, 40))
def test_no_network_loses_while_another_has_more(sizes: list[int], count: int) -> None:
    idle = idle_connections(**{f"n{number}": size for number, size in enumerate(sizes)})
    count = min(count, len(idle))
    left = Counter(item.network for item in idle)
    for closed in choose_idle(idle, count):
        assert left[closed.network] == max(left.values())
        left[closed.network] -= 1
    assert left.total() == len(idle) - count


def test_a_connection_is_idle_if_its_calls_wait_for_the_client() -> None:
    connection, found = Connection(PEER), []
    for begun, waiting in ((0, 0), (1, 0), (0, 1), (1, 0)):
        for _ in range(begun):
            connection.begin_call()
        connection.waiting_calls += waiting
        found.append(connection.idle)
    assert found == [True, False, True, False]


async def becomes(connections: Connections, *, listening: bool) -> None:
    """Waits until the watch has found that."""
    async with asyncio.timeout(WAIT_SECONDS):
        while connections.listening != listening:  # noqa: ASYNC110 - the watch has no event
            await asyncio.sleep(0.005)


@pytest.mark.anyio
async def test_a_socket_whose_connections_nobody_accepts_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if gRPC had closed its acceptor, whose socket stays open."""
    monkeypatch.setattr("dragoman.serve.grpc.connections.STALLED_SECONDS", 0.1)
    monkeypatch.setattr("dragoman.serve.grpc.connections.PAUSE_SECONDS", 0.005)
    connections = Connections(MAX_MESSAGE_BYTES, 8, lambda: None)
    with socket.create_server((HOST, 0)) as server:
        watching = asyncio.create_task(connections.watch(server.getsockname()[1]))
        with socket.create_connection(server.getsockname()):
            await becomes(connections, listening=False)
            server.accept()[0].close()
            await becomes(connections, listening=True)
    await becomes(connections, listening=False)
    watching.cancel()


def test_a_pause_of_the_process_is_no_loss() -> None:
    """Connections came meanwhile, and gRPC has not run either."""
    connections = Connections(MAX_MESSAGE_BYTES, 8, lambda: None)
    connections._note_listener(100, 600.0, accepting=False)
    assert connections.listening
