"""Unread responses of gRPC: bounded in total, and per caller."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from dragoman.protos.translation_pb2 import TranslateResponse, Translation
from dragoman.serve.errors import QueueFullError
from dragoman.serve.grpc import unread as grpc_unread
from dragoman.serve.grpc.connections import Connection
from dragoman.serve.grpc.unread import UnreadResponses

pytestmark = pytest.mark.anyio
LARGE = TranslateResponse(translations=[Translation(text="a" * 20_000)])
SMALL = TranslateResponse(translations=[Translation(text="a")])


class AbortedError(Exception):
    """The call has ended with an error."""


@dataclass
class FakeContext:
    """A call whose client reads when a test allows it."""

    callbacks: list[Callable[[object], object]] = field(default_factory=list)

    def add_done_callback(self, callback: Callable[[object], object]) -> None:
        self.callbacks.append(callback)

    async def abort(self, *_: object) -> None:
        """Raises as gRPC does."""
        raise AbortedError

    def read(self) -> None:
        for callback in self.callbacks:
            callback(None)


async def leave_unread(unread: UnreadResponses, connection: Connection, response: Any = LARGE) -> FakeContext:
    context: Any = FakeContext()
    unread.check(connection)
    await unread.add(response, context, connection)
    found: FakeContext = context
    return found


async def fill(unread: UnreadResponses, address: str) -> list[FakeContext]:
    """Leaves responses unread, each on a connection of its own, until one is refused."""
    contexts = list[FakeContext]()
    for port in range(100):
        try:
            contexts.append(await leave_unread(unread, Connection(f"ipv4:{address}:{port}")))
        except AbortedError:
            break
    return contexts


async def test_a_caller_leaves_half_of_the_room_to_others_however_many_connections_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_unread, "UNREAD_BYTES", 16 * LARGE.ByteSize())
    unread = UnreadResponses()
    assert [len(await fill(unread, f"192.0.2.{number}")) for number in range(4)] == [8, 4, 2, 1]
    assert unread.size_bytes <= grpc_unread.UNREAD_BYTES


async def test_a_caller_with_its_share_still_gets_a_small_response_per_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grpc_unread, "UNREAD_BYTES", 16 * LARGE.ByteSize())
    unread = UnreadResponses()
    await fill(unread, "192.0.2.1")
    connection = Connection("ipv4:192.0.2.1:1000")
    await leave_unread(unread, connection, SMALL)
    with pytest.raises(QueueFullError):
        await leave_unread(unread, connection, SMALL)


async def test_responses_that_are_read_take_nothing() -> None:
    unread = UnreadResponses()
    connection = Connection("ipv4:192.0.2.1:1")
    contexts = [await leave_unread(unread, connection) for _ in range(3)]
    assert unread.size_bytes == connection.unread_bytes == 3 * LARGE.ByteSize()
    for context in contexts:
        context.read()
    assert unread.size_bytes == connection.unread_bytes == 0
