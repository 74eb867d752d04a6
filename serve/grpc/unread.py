"""Bounds the memory of responses that clients do not read.

gRPC keeps the response of a unary call until its client reads it or the connection ends; a server cannot end the call.
Beyond its share of this memory, a caller gets no further response; others still get theirs.
"""

from collections import Counter

from google.protobuf.message import Message

from dragoman.serve.edge.load_shedding import REFUSAL
from dragoman.serve.errors import QueueFullError
from dragoman.serve.grpc.call import ACCOUNT, Context, abort, error_trailers
from dragoman.serve.grpc.connections import Connection
from dragoman.serve.host.state import largest_share
from dragoman.serve.observability.logs import caller_of

UNREAD_BYTES = 64 << 20
# Every connection may have one response of this size: all connections together, a quarter of the bound.
SMALL_BYTES = 16 << 10


class UnreadResponses:
    """Responses of unary calls that gRPC has not sent. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._bytes = Counter[str]()  # by caller

    @property
    def size_bytes(self) -> int:
        """Memory of all responses."""
        return self._bytes.total()

    def check(self, connection: Connection) -> None:
        """Raises QueueFullError if the caller has its share, and the connection an unread response."""
        if connection.unread_bytes and self._room(_caller(connection)) <= 0:
            raise QueueFullError(REFUSAL)

    async def add(self, response: Message, context: Context, connection: Connection) -> None:
        """Counts a response until it is sent; raises grpc.aio.AbortError if it exceeds the share of the caller."""
        size_bytes, caller = response.ByteSize(), _caller(connection)
        small = size_bytes <= SMALL_BYTES and not connection.unread_bytes
        if not small and size_bytes > self._room(caller):
            error = QueueFullError(REFUSAL)
            await abort(context, error, error_trailers(error))
        self._count(caller, connection, size_bytes)
        context.add_done_callback(lambda _: self._count(caller, connection, -size_bytes))

    def _room(self, caller: str) -> int:
        """Returns how many more bytes a caller may leave unread."""
        own_bytes = self._bytes[caller]
        return largest_share(UNREAD_BYTES, self.size_bytes - own_bytes, first=False) - own_bytes

    def _count(self, caller: str, connection: Connection, size_bytes: int) -> None:
        connection.unread_bytes += size_bytes
        self._bytes[caller] += size_bytes
        if not self._bytes[caller]:
            del self._bytes[caller]


def _caller(connection: Connection) -> str:
    return caller_of(ACCOUNT.get(), connection.network)
