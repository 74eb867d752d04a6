"""Bounds the memory of responses that clients do not read.

gRPC keeps the response of a unary call until its client reads it or the connection ends; a server cannot end the call.
While such responses take too much memory, connections with unread responses get no further ones.
"""

from collections import Counter

from google.protobuf.message import Message

from serve.api.grpc_call import Context
from serve.api.load_shedding import REFUSAL
from serve.errors import QueueFullError

UNREAD_BYTES = 64 << 20


class UnreadResponses:
    """Responses of unary calls that gRPC has not sent. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._bytes = Counter[str]()  # by connection
        self._total_bytes = 0

    def check(self, context: Context) -> None:
        """Raises QueueFullError if too much is unread, of the connection of this call too."""
        if self._total_bytes >= UNREAD_BYTES and context.peer() in self._bytes:
            raise QueueFullError(REFUSAL)

    def add(self, response: Message, context: Context) -> None:
        """Counts a response until it is sent."""
        connection, size_bytes = context.peer(), response.ByteSize()
        self._count(connection, size_bytes)
        context.add_done_callback(lambda _: self._count(connection, -size_bytes))  # type: ignore[arg-type]  # wrong stub

    def _count(self, connection: str, size_bytes: int) -> None:
        self._total_bytes += size_bytes
        self._bytes[connection] += size_bytes
        if not self._bytes[connection]:
            del self._bytes[connection]
