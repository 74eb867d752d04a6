"""Frames: arguments and results of a parser as bytes. A hostile sender can only send wrong values.

A frame is its kind, the length of its content in four bytes, and the content. An item is bytes, or a value of JSON.
JSON items travel several in a frame; large bytes travel in several frames.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

# Bytes, or a value of JSON.
Item = Any

HEADER_BYTES = 5
# A frame of about this size is encoded or decoded in less than a millisecond.
JSON_BYTES = 32 << 10
PIECE_BYTES = 256 << 10

JSON, PIECE, LAST_PIECE, END, REFUSAL, FAILURE = b"J", b"p", b"P", b"E", b"R", b"F"
KINDS = frozenset((JSON, PIECE, LAST_PIECE, END, REFUSAL, FAILURE))


class FrameError(Exception):
    """Bytes that are no frames."""


def frame(kind: bytes, content: bytes = b"") -> bytes:
    """Returns one frame."""
    return kind + len(content).to_bytes(4, "big") + content


def read_header(header: bytes) -> tuple[bytes, int]:
    """Returns kind and length of a frame; raises FrameError if the kind is unknown."""
    kind = header[:1]
    if kind not in KINDS:
        raise FrameError("unknown kind of frame")
    return kind, int.from_bytes(header[1:HEADER_BYTES], "big")


def encode(items: Iterable[Item]) -> Iterator[bytes]:
    """Yields the frames of items, and the end."""
    texts, size = list[str](), 0
    for item in items:
        is_bytes = isinstance(item, bytes)
        if not is_bytes:
            texts.append(json.dumps(item, ensure_ascii=False, separators=(",", ":")))
            size += len(texts[-1])
        if texts and (is_bytes or size >= JSON_BYTES):
            yield _json_frame(texts)
            texts, size = [], 0
        if is_bytes:
            yield from _byte_frames(item)
    if texts:
        yield _json_frame(texts)
    yield frame(END)


def encode_json(value: Item) -> bytes:
    """Returns a value as JSON. Documents may have lone surrogates."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


class Decoder:
    """Turns the contents of frames into items."""

    def __init__(self) -> None:
        self._pieces = list[bytes]()

    def decode(self, kind: bytes, content: bytes) -> list[Item]:
        """Returns the items that a frame of items completes; raises FrameError if the content is malformed."""
        if kind == JSON:
            items = decode_json(content)
            if not isinstance(items, list) or self._pieces:
                raise FrameError("expected a list")
            return items
        self._pieces.append(content)
        if kind == PIECE:
            return []
        data = b"".join(self._pieces)
        self._pieces.clear()
        return [data]


def decode_json(content: bytes) -> Item:
    """Returns a value from JSON; raises FrameError if the content is malformed."""
    try:
        return json.loads(content.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise FrameError("expected JSON") from error


def _json_frame(texts: list[str]) -> bytes:
    return frame(JSON, f"[{','.join(texts)}]".encode("utf-8", "surrogatepass"))


def _byte_frames(data: bytes) -> Iterator[bytes]:
    start = 0
    while len(data) - start > PIECE_BYTES:
        yield frame(PIECE, data[start : start + PIECE_BYTES])
        start += PIECE_BYTES
    yield frame(LAST_PIECE, data[start:])
