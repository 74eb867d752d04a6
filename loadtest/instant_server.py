"""A minimal REST server that returns one translation at once; the self-test stalls it.

It parses only lengths, so that it answers the hundreds of requests that queue during a stall within moments. Run as a
program, it prints its port and serves until it is killed.
"""

import asyncio
import re

HOST = "127.0.0.1"
# Connections made during a stall wait in the kernel's queue. A full queue would delay them by a SYN retry of one
# second.
BACKLOG = 4096
_BODY = b'{"translations": [{}]}'
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_END_OF_HEADERS = b"\r\n\r\n"


class InstantAnswers(asyncio.Protocol):
    """One connection."""

    def __init__(self) -> None:
        self._received = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stores the transport."""
        if not isinstance(transport, asyncio.Transport):
            raise TypeError("transport: expected a stream transport")
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answers every complete request."""
        self._received += data
        while (end := self._end_of_request()) is not None:
            self._received = self._received[end:]
            self._transport.write(_ANSWER)

    def _end_of_request(self) -> int | None:
        head, found, body = self._received.partition(_END_OF_HEADERS)
        length = _LENGTH.search(head)
        body_bytes = 0 if length is None else int(length[1])
        return len(head) + len(found) + body_bytes if found and len(body) >= body_bytes else None


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(InstantAnswers, HOST, 0, backlog=BACKLOG)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve())
