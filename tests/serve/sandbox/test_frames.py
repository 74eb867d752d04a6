"""Frames: every item comes back, and damaged bytes give an error or other values, nothing else."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.serve.sandbox.frames import END, HEADER_BYTES, PIECE_BYTES, Decoder, FrameError, Item, encode, read_header

TEXTS = st.text(st.characters(exclude_categories=[]), max_size=20)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3))
ITEMS = st.lists(VALUES | st.binary(max_size=30), max_size=12)


def read(data: bytes) -> Iterator[Item]:
    """Yields the items of frames up to the end, which is required."""
    decoder = Decoder()
    while True:
        if len(data) < HEADER_BYTES:
            raise FrameError("no end")
        kind, length = read_header(data[:HEADER_BYTES])
        content, data = data[HEADER_BYTES : HEADER_BYTES + length], data[HEADER_BYTES + length :]
        if kind == END:
            return
        yield from decoder.decode(kind, content)


@given(ITEMS)
def test_what_is_encoded_is_decoded(items: list[Item]) -> None:
    assert list(read(b"".join(encode(items)))) == items


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_large_bytes_are_sent_in_pieces(size: int) -> None:
    frames = list(encode(["a", b"x" * size, "b"]))
    assert max(map(len, frames)) <= PIECE_BYTES + HEADER_BYTES
    assert list(read(b"".join(frames))) == ["a", b"x" * size, "b"]


def test_many_small_items_are_sent_together_in_small_frames() -> None:
    frames = list(encode([["text", number] for number in range(20_000)]))
    assert len(frames) < 100
    assert max(map(len, frames)) < 100_000


@given(ITEMS, st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4), st.binary(max_size=10))
def test_damage_gives_other_items_or_an_error(items: list[Item], damages: list[tuple[int, int]], tail: bytes) -> None:
    data = bytearray(b"".join(encode(items)) + tail)
    for place, value in damages:
        if place < len(data):
            data[place] = value
    try:
        found = list(read(bytes(data)))
    except FrameError:
        return
    assert isinstance(found, list)
