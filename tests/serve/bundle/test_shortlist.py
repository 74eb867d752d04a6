"""Reads and writes shortlists of a vocabulary, and rejects files that do not fit a model."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dragoman.serve.bundle.shortlist import Shortlist, ShortlistError, check_checksum, read_shortlist

# Five source tokens, and as many target tokens.
ENTRIES: tuple[list[int], ...] = ([], [4, 2], [3], [], [0, 2, 4])
TOKENS = len(ENTRIES)
# Where fields of the file are.
CHECKSUM, FREQUENT, OFFSETS, FIRST_OFFSET, FIRST_ID = 8, 16, 32, 48, 48 + 8 * (TOKENS + 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Shortlist.of(2, ENTRIES).write(tmp_path / "shortlist.bin")
    return tmp_path / "shortlist.bin"


def test_candidates_are_the_first_tokens_and_those_of_the_source_and_the_request(path: Path) -> None:
    shortlist = read_shortlist(path, TOKENS, TOKENS)
    assert (shortlist.frequent, shortlist.best) == (2, 3)
    assert shortlist.candidates([]).tolist() == [0, 1]
    assert shortlist.candidates([1, 2, 1]).tolist() == [0, 1, 2, 3, 4]
    assert shortlist.candidates([2], [4, 3]).tolist() == [0, 1, 3, 4]
    assert [shortlist.entry(token).tolist() for token in range(TOKENS)] == [[], [2, 4], [3], [], [0, 2, 4]]


def test_the_file_has_the_layout_of_marian(path: Path) -> None:
    numbers = struct.unpack(f"<6Q{TOKENS + 1}Q6I", path.read_bytes())
    assert numbers[0] == 0xF11A48D5013417F5
    assert numbers[2:] == (2, 3, TOKENS + 1, 6, 0, 0, 2, 3, 3, 6, 2, 4, 3, 0, 2, 4)
    check_checksum(path)


@pytest.mark.parametrize("entries", [[[1], [2], [3]], [[1], [2]], [[], []]], ids=["odd", "even", "empty"])
def test_a_written_shortlist_is_read_again(entries: list[list[int]], tmp_path: Path) -> None:
    written = Shortlist.of(3, entries)
    written.write(tmp_path / "file")
    found = read_shortlist(tmp_path / "file", len(entries), 4)
    check_checksum(tmp_path / "file")
    assert np.array_equal(found.offsets, written.offsets)
    assert [found.entry(token).tolist() for token in range(len(entries))] == entries


def test_a_changed_byte_changes_the_checksum(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[FIRST_ID] += 1
    path.write_bytes(content)
    with pytest.raises(ShortlistError, match=r"shortlist\.bin: checksum: "):
        check_checksum(path)


def put(kind: str, offset: int, value: int) -> Callable[[bytes], bytes]:
    def change(content: bytes) -> bytes:
        changed = bytearray(content)
        struct.pack_into(kind, changed, offset, value)
        return bytes(changed)

    return change


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda _: b"", "0 bytes"),
        (lambda content: content[:40], "40 bytes"),
        (lambda content: content[:-1], "bytes"),
        (lambda content: content + b"\0", "bytes"),
        (put("<Q", 0, 7), "magic"),
        (put("<Q", FREQUENT, TOKENS + 1), "frequent"),
        (put("<Q", OFFSETS, TOKENS), "offsets"),
        (put("<Q", OFFSETS, 1 << 61), "offsets"),
        (put("<Q", OFFSETS + 8, 1 << 62), "bytes"),
        (put("<Q", FIRST_OFFSET, 1), "offsets"),
        (put("<Q", FIRST_OFFSET + 16, 5), "offsets"),
        (put("<Q", FIRST_OFFSET + 8, (1 << 64) - 1), "offsets"),
        (put("<Q", FIRST_OFFSET + 8 * TOKENS, 1 << 40), "offsets"),
        (put("<I", FIRST_ID, TOKENS), "ids"),
        (put("<I", FIRST_ID, (1 << 32) - 1), "ids"),
    ],
)
def test_a_file_that_does_not_fit_the_vocabularies_is_rejected(
    change: Callable[[bytes], bytes], field: str, path: Path
) -> None:
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ShortlistError, match=rf"^{path}: {field}"):
        read_shortlist(path, TOKENS, TOKENS)
