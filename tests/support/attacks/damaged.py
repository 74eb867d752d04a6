"""Damaged gRPC: conversations of HTTP/2 whose fields, HPACK blocks and frames break every rule, from a seed.

A conversation begins as a valid client would, so that the damage reaches the server's code behind the handshake. One
number gives one conversation, so that a crash can be repeated.
"""

import itertools
import struct
from collections.abc import Callable
from random import Random

from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tests.support.attacks import http2
from tests.support.attacks.link import Link

PATHS = (
    http2.TRANSLATE,
    http2.TRANSLATE_STREAM,
    http2.TRANSLATE_MANY,
    http2.WATCH,
    http2.REFLECTION,
    "/grpc.health.v1.Health/Check",
    "/inference.GRPCInferenceService/ServerLive",
)
MESSAGES = (http2.TEXT, http2.LIST_SERVICES, b"", b"\xff\xff\xff\xff", b"\x0a\x01\xff")
# Flags of HTTP/2.
END_STREAM, END_HEADERS, PADDED, PRIORITY = 0x1, 0x4, 0x8, 0x20
MAX_FRAMES = 6
PAUSE_SECONDS = 0.005
ANSWER_SECONDS = 0.02

Fields = list[tuple[bytes, bytes]]


def integer(value: int, prefix_bits: int, first: int) -> bytes:
    """Returns an integer of HPACK (RFC 7541, 5.1); `first` has the bits before the prefix."""
    limit = (1 << prefix_bits) - 1
    if value < limit:
        return bytes([first | value])
    coded, value = bytes([first | limit]), value - limit
    while value >= 0x80:
        coded, value = coded + bytes([value & 0x7F | 0x80]), value >> 7
    return coded + bytes([value])


def literal(name: bytes, value: bytes, first: int = 0x00, huffman: int = 0x00) -> bytes:
    """Returns a literal field of HPACK; `huffman` 0x80 declares the bytes as Huffman code, whatever they are."""
    return bytes([first]) + integer(len(name), 7, huffman) + name + integer(len(value), 7, huffman) + value


def call_fields(random: Random) -> Fields:
    return [
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", random.choice(PATHS).encode()),
        (b":authority", b"attacker"),
        (b"content-type", b"application/grpc"),
        (b"te", b"trailers"),
    ]


def any_bytes(random: Random, most: int = 40) -> bytes:
    """Returns bytes: any, printable ones, UTF-8, or text that is not UTF-8."""
    length = random.choice((0, 1, 2, 5, random.randrange(most), random.randrange(most)))
    text = random.randbytes(length)
    kinds = (text, text.hex().encode(), text.decode("latin-1").encode(), b"\xa1" + text, b"\xff\xfe", b"\0", b"\r\n: ")
    return random.choice(kinds)


def damage_fields(random: Random, fields: Fields) -> Fields:
    """Returns the fields with one damage: a pseudo header that is missing, repeated, late or odd, or odd metadata."""
    number = random.randrange(len(fields))
    name, value = fields[number]
    odd: tuple[Callable[[], Fields], ...] = (
        lambda: fields[:number] + fields[number + 1 :],
        lambda: [*fields, fields[number]],
        lambda: [*fields[:number], (name, any_bytes(random)), *fields[number + 1 :]],
        lambda: [*fields[:2], (b":path", fields[2][1] + any_bytes(random)), *fields[3:]],
        lambda: [*fields[:2], (b":path", any_bytes(random, 2000)), *fields[3:]],
        lambda: [*fields[:number], (name + any_bytes(random), value), *fields[number + 1 :]],
        lambda: [*fields, (any_bytes(random), any_bytes(random))],
        lambda: [*fields, (b"m" + any_bytes(random) + b"-bin", any_bytes(random, 300))],
        lambda: [*fields, (random.choice(RESERVED), any_bytes(random))],
        lambda: [*fields, (b"long", random.randbytes(1) * random.choice((8_000, 20_000, 70_000)))],
        lambda: random.sample(fields, len(fields)),
        lambda: [*fields, (b":status", b"200"), (b":" + any_bytes(random), b"1")],
    )
    return random.choice(odd)()


# Fields that gRPC's core reads itself.
RESERVED = (
    *(b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding", b"grpc-status", b"grpc-message", b"user-agent"),
    *(b"content-type", b"te", b"host", b"grpc-trace-bin", b"grpc-tags-bin", b"grpc-previous-rpc-attempts"),
    *(b"grpc-retry-pushback-ms", b"lb-token", b"lb-cost-bin", b"endpoint-load-metrics-bin", b"w3c-traceparent"),
    *(b"grpc-internal-encoding-request", b"x-envoy-peer-metadata", b"authorization", b"x-request-id", b"connection"),
)


def block_of(random: Random, fields: Fields) -> bytes:
    """Returns the HPACK block of fields; sometimes a value is declared as Huffman code that it is not."""
    firsts = (0x00, 0x00, 0x40, 0x10)
    return b"".join(literal(*field, random.choice(firsts), random.choice((0,) * 30 + (0x80,))) for field in fields)


def damage_block(random: Random, block: bytes) -> bytes:
    at = random.randrange(len(block) + 1)
    flipped = bytearray(block)
    for _ in range(random.choice((1, 1, 2, 8))):
        flipped[random.randrange(len(block))] ^= 1 << random.randrange(8)
    far = (random.randrange(62, 200), 0, 2**31 - 1, 2**32, 2**64)
    return random.choice(
        (
            bytes(flipped),
            block[:at],
            block[at:],
            block[:at] + random.randbytes(random.randrange(1, 9)) + block[at:],
            block + integer(random.choice(far), 7, 0x80),  # a field of the tables
            integer(random.choice(far), 5, 0x20) + block,  # the size of the table
            block + integer(random.choice(far), 6, 0x40) + b"\0",  # a name of the tables
            block + b"\x00" + integer(random.choice(far), 7, random.choice((0, 0x80))) + b"ab",  # a long name
            block + b"\xff" * random.choice((1, 6, 12)),  # an integer without end
            block + literal(b"n", random.randbytes(random.randrange(30)), 0x40, 0x80),
        )
    )


def frame(kind: int, flags: int, stream_id: int, payload: bytes, length: int | None = None) -> bytes:
    """Returns a frame; its stated length may be wrong."""
    stated = len(payload) if length is None else length
    return struct.pack(">I", stated & 0xFFFFFF)[1:] + struct.pack(">BBI", kind, flags, stream_id) + payload


def call(random: Random, stream_id: int) -> bytes:
    """Returns the frames of a call, whose fields or block are often damaged."""
    fields = call_fields(random)
    for _ in range(random.choice((0, 0, 1, 1, 2))):
        fields = damage_fields(random, fields)
    block = block_of(random, fields)
    if block and random.random() < 0.15:
        block = damage_block(random, block)
    message = http2.data(stream_id, http2.prefixed(random.choice(MESSAGES)), end=random.random() < 0.8)
    at = random.choice((len(block), len(block), random.randrange(len(block) + 1)))
    begun = frame(HeadersFrame.type, END_HEADERS if at == len(block) else 0, stream_id, block[:at])
    if at < len(block):
        begun += frame(ContinuationFrame.type, END_HEADERS, stream_id, block[at:])
    trailers = block_of(random, [(b"trailer", any_bytes(random)), *random.sample(fields, min(2, len(fields)))])
    ended = frame(HeadersFrame.type, END_HEADERS | END_STREAM, stream_id, trailers)
    return begun + random.choice((message, message, message, b"", ended, message + ended))


def stray(random: Random, stream_id: int) -> bytes:
    """Returns a frame that no client should send now: of any kind, on any stream, of any length."""
    kinds = (DataFrame, HeadersFrame, PriorityFrame, RstStreamFrame, SettingsFrame, PingFrame, GoAwayFrame)
    kind = random.choice([item.type or 0 for item in (*kinds, WindowUpdateFrame, ContinuationFrame)] + [5, 10, 255])
    stream_id = random.choice((stream_id, stream_id, 0, 1, 2, stream_id + 2, 2**31 - 1))
    payload = random.choice(
        (
            random.randbytes(random.choice((0, 1, 4, 5, 6, 8, 9, 30))),
            struct.pack(">I", random.choice((0, 1, 8, 2**31 - 1, 2**32 - 1))),
            struct.pack(">HI", random.randrange(8), random.choice((0, 1, 16_383, 2**24, 2**31, 2**32 - 1))),
            struct.pack(">B", random.randrange(256)) + b"padded",
        )
    )
    wrong = random.choice((None, None, None, len(payload) + 1, max(0, len(payload) - 1), 16_385, 2**24 - 1))
    return frame(kind, random.choice((0, 1, 4, 5, PADDED, PRIORITY, random.randrange(256))), stream_id, payload, wrong)


def conversation(random: Random) -> list[bytes]:
    opening = random.choice((http2.PREFACE,) * 20 + (http2.PREFACE[: random.randrange(24)], b""))
    sent = opening + SettingsFrame().serialize()
    for stream_id in itertools.islice(itertools.count(1, 2), random.randrange(1, MAX_FRAMES)):
        sent += call(random, stream_id)
        if random.random() < 0.2:
            sent += stray(random, stream_id)
    if random.random() < 0.1:
        sent = sent[: random.randrange(len(sent))]
    cut = random.randrange(len(sent) + 1)
    return [piece for piece in random.choice(([sent], [sent], [sent[:cut], sent[cut:]])) if piece]


async def damaged(link: Link, random: Random | None = None) -> None:
    """Sends one damaged conversation, and leaves after the first answers."""
    for piece in conversation(random or Random()):
        await link.send(piece)
        await link.pause(PAUSE_SECONDS)
    await link.pause(ANSWER_SECONDS)
