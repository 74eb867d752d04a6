"""The pieces of large answers, on a transport that sends when a test allows it."""

import asyncio
import socket
from contextlib import suppress
from typing import cast

import pytest

from dragoman.serve.http.kept_bytes import KeptBytes
from dragoman.serve.http.output import PIECE_BYTES, Output
from dragoman.serve.http.tls import ANY_WRITE


class FakeTransport:
    """Buffers what is written until `send`; `log` has the ends of the output."""

    def __init__(self) -> None:
        self.buffered = self.sent = b""
        self.quick = self.closed = False
        self.log = list[str]()

    def write(self, data: bytes | memoryview) -> None:
        self.buffered += data
        if self.quick:
            self.send()

    def send(self) -> None:
        self.sent, self.buffered = self.sent + self.buffered, b""

    def get_write_buffer_size(self) -> int:
        return len(self.buffered)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True
        self.log.append("close")

    def can_write_eof(self) -> bool:
        """Returns true, as without TLS."""
        return True

    def write_eof(self) -> None:
        self.log.append("eof")


@pytest.fixture
def transport() -> FakeTransport:
    return FakeTransport()


@pytest.fixture
def output(transport: FakeTransport) -> Output:
    return Output(cast("asyncio.Transport", transport), None)


LARGE = bytes(range(256)) * (PIECE_BYTES * 5 // 512)  # two and a half pieces


def test_the_transport_gets_a_piece_when_it_has_sent_the_one_before(transport: FakeTransport, output: Output) -> None:
    sizes = []
    output.write(LARGE)
    output.write(b"end")
    while output.unsent_bytes:
        assert output.unsent_bytes + len(transport.sent) == len(LARGE) + 3
        sizes.append(len(transport.buffered))
        output.proceed()  # changes nothing
        transport.send()
        output.proceed()
    assert sizes == [PIECE_BYTES, PIECE_BYTES, PIECE_BYTES // 2, 3]
    assert transport.sent == LARGE + b"end"


def test_a_transport_that_sends_at_once_gets_everything(transport: FakeTransport, output: Output) -> None:
    transport.quick = True
    output.write(LARGE)
    assert transport.sent == LARGE


@pytest.mark.parametrize("end", ["close", "eof"])
def test_the_output_ends_after_the_last_piece(transport: FakeTransport, output: Output, end: str) -> None:
    output.write(LARGE)
    (output.close if end == "close" else output.write_eof)()
    assert output.closing == (end == "close")
    for _ in range(2):
        assert transport.log == []
        transport.send()
        output.proceed()
    assert transport.log == [end]
    assert transport.sent + transport.buffered == LARGE


def test_an_answer_is_held_until_its_last_piece(transport: FakeTransport, output: Output) -> None:
    """Its memory is given back as a whole."""
    output.write(LARGE)
    held = []
    while output.unsent_bytes:
        held.append(output.measure()[1])
        transport.send()
        output.proceed()
    assert held == [len(LARGE) + PIECE_BYTES, len(LARGE) + PIECE_BYTES, PIECE_BYTES // 2]
    assert output.measure() == (0, 0)


def test_bytes_that_the_server_keeps_hold_a_piece(transport: FakeTransport, output: Output) -> None:
    output.write(KeptBytes(LARGE))
    assert output.measure() == (len(LARGE), PIECE_BYTES)
    output.write(LARGE)
    output.clear()
    assert output.measure() == (len(transport.buffered), len(transport.buffered))


def test_a_closed_transport_gets_nothing(transport: FakeTransport, output: Output) -> None:
    output.write(LARGE)
    transport.send()
    transport.closed = True
    output.proceed()
    assert (output.unsent_bytes, len(transport.sent)) == (0, PIECE_BYTES)


@pytest.mark.anyio
async def test_a_transport_pauses_at_a_single_unsent_byte() -> None:
    """Otherwise it would not report when it has sent that byte, and the next piece would wait for ever."""

    class Protocol(asyncio.Protocol):
        paused = False

        def pause_writing(self) -> None:
            self.paused = True

    here, there = socket.socketpair()
    with here, there:
        transport, protocol = await asyncio.get_running_loop().create_connection(Protocol, sock=here)
        transport.set_write_buffer_limits(**ANY_WRITE)
        with suppress(BlockingIOError):
            while True:
                here.send(bytes(1 << 16))
        transport.write(b"a")
        transport.abort()
        assert protocol.paused
