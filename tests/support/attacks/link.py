"""One connection of an attacker: raw bytes over TCP or TLS, and what the server answers.

Attackers connect from an address of their own, so that limits per address do not meet well-behaved clients.
"""

import asyncio
import re
import socket
import ssl
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

HOST = "127.0.0.1"
ATTACKER = "127.0.0.2"
CONNECT_SECONDS = 10.0
SMALL_BUFFER_BYTES = 4096
LOOK_SECONDS = 0.2
CHUNK_BYTES = 1 << 16
ESTABLISHED = 1  # state of a TCP connection, of <netinet/tcp.h>


class EndedError(Exception):
    """The server ended the connection; the message is the way: `closed` or `reset`."""


@dataclass(frozen=True, slots=True)
class Target:
    """A port of the server; with `context`, connections use TLS. `source` is the address of the attacker."""

    port: int
    context: ssl.SSLContext | None = None
    source: str = ATTACKER


class Answers(Protocol):
    """Counts the complete answers on one connection."""

    received: int

    def feed(self, data: bytes) -> bytes:
        """Takes bytes from the server and returns the bytes that the protocol requires in return."""


class Http1Answers:
    """Counts responses of HTTP/1.1 by status code; `counts` may be shared by connections."""

    _status = re.compile(rb"HTTP/1\.1 (\d{3}) ")
    _longest = len(b"HTTP/1.1 200")  # an incomplete match

    def __init__(self, counts: Counter[str]) -> None:
        self.received = 0
        self._counts = counts
        self._rest = b""

    def feed(self, data: bytes) -> bytes:
        """Counts the status lines; HTTP/1.1 requires nothing in return."""
        data = self._rest + data
        codes = [code.decode() for code in self._status.findall(data)]
        self.received += len(codes)
        self._counts.update(codes)
        self._rest = data[-self._longest :]
        return b""


class Link:
    """An open connection. A task reads what arrives, unless the client never reads, and answers it if `replies`."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answers: Answers, *, reads: bool
    ) -> None:
        self._reader, self._writer = reader, writer
        self.answers = answers
        self.replies = True
        # Sent with the first bytes, because a client of HTTP/2 must begin with the preface; afterwards None.
        self._first_replies: bytes | None = b""
        self._way = ""
        self._ended = asyncio.Event()
        self._reading = asyncio.create_task(self._read() if reads else self._look())

    @classmethod
    async def open(cls, target: Target, answers: Answers, *, reads: bool = True) -> "Link":
        """Connects, or raises OSError; if the client does not read, its buffers are small, and the server's fill up."""
        connection = socket.socket()
        connection.setblocking(False)
        if not reads:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER_BYTES)
        try:
            connection.bind((target.source, 0))
            async with asyncio.timeout(CONNECT_SECONDS):
                await asyncio.get_running_loop().sock_connect(connection, (HOST, target.port))
                reader, writer = await asyncio.open_connection(
                    sock=connection,
                    limit=CHUNK_BYTES if reads else 1,
                    ssl=target.context,
                    server_hostname=None if target.context is None else HOST,
                )
        except BaseException:
            connection.close()
            raise
        transport: Any = writer.transport
        if not reads:
            transport.pause_reading()
            if target.context is not None:
                transport.set_read_buffer_limits(high=0)  # else TLS reads 256 KiB ahead
        return cls(reader, writer, answers, reads=reads)

    async def _read(self) -> None:
        try:
            while data := await self._reader.read(CHUNK_BYTES):
                reply = self.answers.feed(data)
                if self._first_replies is not None:
                    self._first_replies += reply
                elif reply and self.replies:
                    self._writer.write(reply)
            self._end("closed")
        except OSError:
            self._end("reset")

    async def _look(self) -> None:
        """Polls the state of the connection, because a client that does not read gets no event."""
        connection = self._writer.get_extra_info("socket")
        while connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == ESTABLISHED:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
        self._end("reset")

    def _end(self, way: str) -> None:
        self._way = way
        self._ended.set()

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def send(self, data: bytes) -> None:
        """Sends bytes, as fast as the server takes them; raises EndedError if it ends the connection first."""
        if self._ended.is_set():
            raise EndedError(self._way)
        self._writer.write(data + (self._first_replies or b""))
        self._first_replies = None
        draining = asyncio.ensure_future(self._writer.drain())
        ended = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait((draining, ended), return_when=asyncio.FIRST_COMPLETED)
            if draining.done():
                draining.result()
                return
        except OSError as error:
            raise EndedError("reset") from error
        finally:
            draining.cancel()
            ended.cancel()
        raise EndedError(self._way)

    async def pause(self, seconds: float) -> None:
        """Waits; raises EndedError if the server ends the connection meanwhile."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), seconds)
            raise EndedError(self._way)

    async def hold(self) -> None:
        """Keeps the connection open until the server ends it, which raises `EndedError`."""
        await self._ended.wait()
        raise EndedError(self._way)

    def close(self) -> None:
        self._reading.cancel()
        self._writer.transport.abort()


# What one client does on one connection.
Behavior = Callable[[Link], Awaitable[None]]


async def attempt(
    target: Target, answers: Answers, attack: Behavior, counts: Counter[str], *, reads: bool = True
) -> None:
    """Attacks over one connection, and counts how it ends: as `EndedError` states, `left`, or `refused`."""
    try:
        link = await Link.open(target, answers, reads=reads)
    except OSError:
        counts["refused"] += 1
        return
    try:
        await attack(link)
        counts["left"] += 1
    except EndedError as ended:
        counts[str(ended)] += 1
    finally:
        link.close()
