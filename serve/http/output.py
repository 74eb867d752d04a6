"""What a connection sends: large answers go to the transport in pieces, each after the client has read the one before.

The transport copies what it cannot send. An answer that no client reads thus costs a piece, besides the answer itself,
and nothing else if the server keeps the answer anyway. Until its last piece, the whole answer stays in memory.
"""

import asyncio
from collections import deque

from dragoman.serve.http.kept_bytes import KeptBytes
from dragoman.serve.http.tls import TlsLayer

# The part of a large answer that the transport gets at once.
PIECE_BYTES = 32 << 10


class Output:
    """Bytes on their way to a transport, and the end of the output after them. Streams wait with `drain`.

    Attributes:
        reads: set unless an answer waits for the client.
    """

    def __init__(self, transport: asyncio.Transport, tls: TlsLayer | None) -> None:
        self._transport = transport
        self._tls = tls
        # What follows of each answer, and the memory of the whole answer; 0: the server keeps it anyway.
        self._rest = deque[tuple[memoryview, int]]()
        self._rest_bytes = self._whole_bytes = 0
        self._closes = self._ends = False
        self.reads = asyncio.Event()
        self.reads.set()

    @property
    def closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._closes or self._transport.is_closing()

    @property
    def unsent_bytes(self) -> int:
        """All bytes that the system has not taken."""
        return self._buffered_bytes() + self._rest_bytes

    def measure(self) -> tuple[int, int]:
        """Returns the bytes that the system has not taken, and the memory of their answers.

        The memory counts also the parts that are sent, without what the server keeps anyway.
        """
        buffered_bytes = self._buffered_bytes()
        return buffered_bytes + self._rest_bytes, buffered_bytes + self._whole_bytes

    async def drain(self) -> None:
        """Waits until the client has read, or is gone."""
        await self.reads.wait()

    def write(self, data: bytes) -> None:
        """Sends data after that before."""
        if not self._rest and len(data) <= PIECE_BYTES:
            self._transport.write(data)
            return
        whole_bytes = 0 if isinstance(data, KeptBytes) else len(data)
        self._rest.append((memoryview(data), whole_bytes))
        self._rest_bytes += len(data)
        self._whole_bytes += whole_bytes
        self.proceed()

    def close(self) -> None:
        """Closes the connection once all data is sent."""
        self._closes = True
        self.proceed()

    def write_eof(self) -> None:
        """Ends the output after what is written. Over TLS, only `close` does."""
        self._ends = self._transport.can_write_eof()
        self.proceed()

    def flush(self) -> None:
        """Gives the rest to the transport at once: for a transport that is about to close."""
        for data, _ in self._rest:
            self._transport.write(data)
        self.clear()

    def clear(self) -> None:
        """Drops the rest."""
        self._rest.clear()
        self._rest_bytes = self._whole_bytes = 0

    def proceed(self) -> None:
        """Writes further pieces until the transport has to wait. Must be called when it has sent everything."""
        while self._rest and not self._buffered_bytes():
            if self._transport.is_closing():
                self.clear()
                return
            self._write_piece()
        if self._rest:
            return
        if self._closes:
            self._transport.close()
        elif self._ends:
            self._ends = False
            self._transport.write_eof()

    def _write_piece(self) -> None:
        data, whole_bytes = self._rest.popleft()
        if len(data) > PIECE_BYTES:
            self._rest.appendleft((data[PIECE_BYTES:], whole_bytes))
        else:
            self._whole_bytes -= whole_bytes
        piece = data[:PIECE_BYTES]
        self._rest_bytes -= len(piece)
        self._transport.write(piece)

    def _buffered_bytes(self) -> int:
        # asyncio's TLS transport loses its protocol at the second `close`, and its buffer with it.
        if self._tls is not None and getattr(self._transport, "_ssl_protocol", self) is None:
            return 0
        return self._transport.get_write_buffer_size() + (0 if self._tls is None else self._tls.unsent_bytes)
