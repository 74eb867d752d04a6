"""Bounds the memory of responses that clients do not read.

gRPC keeps the response of a unary call until its client reads it or the connection ends; a server cannot end the call.
While such responses take too much memory, connections with unread responses get no further ones.
"""

from google.protobuf.message import Message

from serve.api.grpc_call import Context
from serve.api.grpc_connections import Connection
from serve.api.load_shedding import REFUSAL
from serve.errors import QueueFullError

UNREAD_BYTES = 64 << 20


class UnreadResponses:
    """Responses of unary calls that gRPC has not sent. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._bytes = 0

    def check(self, connection: Connection) -> None:
        """Raises QueueFullError if too much is unread, of this connection too."""
        if self._bytes >= UNREAD_BYTES and connection.unread_bytes:
            raise QueueFullError(REFUSAL)

    def add(self, response: Message, context: Context, connection: Connection) -> None:
        """Counts a response until it is sent."""
        size_bytes = response.ByteSize()
        self._count(connection, size_bytes)
        context.add_done_callback(lambda _: self._count(connection, -size_bytes))  # type: ignore[arg-type]  # wrong stub

    def _count(self, connection: Connection, size_bytes: int) -> None:
        self._bytes += size_bytes
        connection.unread_bytes += size_bytes
