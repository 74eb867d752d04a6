"""The shortlist of a vocabulary: the likely target tokens of each source token, in Marian's binary format.

A file has six numbers (magic, checksum, frequent, best, number of offsets, number of ids), the offsets, and the ids.
Numbers and offsets are uint64, ids are uint32, all little-endian. An id at the end may belong to no token: writers pad
the ids to an even number, as the checksum reads 8 bytes at a time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle.files import open_file

MAGIC = 0xF11A48D5013417F5
_HEADER = np.dtype([(name, "<u8") for name in ("magic", "checksum", "frequent", "best", "offsets", "ids")])
_OFFSET_BYTES, _ID_BYTES = 8, 4


def max_candidates(vocabulary: int, rows: int) -> int:
    """Returns the most candidates of a sequence with some rows: the whole vocabulary takes the place of more."""
    return min(4096, max(256, vocabulary // (4 if rows > 1 else 8)))


class ShortlistError(ValueError):
    """The file is no shortlist of the model; the message names the file, the field and the expected value."""


@dataclass(frozen=True, slots=True, eq=False)
class Shortlist:
    """The candidates of a translation: the first tokens of the vocabulary, and the likely ones of its source tokens.

    Attributes:
        frequent: first tokens of the target vocabulary that every list has.
        best: most ids that a source token has.
        offsets: int64 [source vocabulary + 1]; the ids of a source token begin at its offset and end at the next one.
        ids: int32 [ids]; target tokens, ascending for each source token.
    """

    frequent: int
    best: int
    offsets: NDArray[np.int64]
    ids: NDArray[np.int32]

    @classmethod
    def of(cls, frequent: int, entries: Sequence[Iterable[int]]) -> Self:
        """Returns the shortlist with the target tokens of each source token."""
        rows = [np.unique(np.fromiter(entry, np.int32)) for entry in entries]
        lengths = [len(row) for row in rows]
        offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
        return cls(frequent, max(lengths), offsets, np.concatenate(rows))

    def entry(self, token_id: int) -> NDArray[np.int32]:
        """Returns the likely target tokens of a source token, int32 [ids], ascending."""
        return self.ids[self.offsets[token_id] : self.offsets[token_id + 1]]

    def candidates(self, source_ids: Iterable[int], extra_ids: Iterable[int] = ()) -> NDArray[np.int32]:
        """Returns the candidates of a source and of its request, int32 [ids], ascending and without repetition."""
        entries = (self.entry(token_id) for token_id in set(source_ids))
        extra = np.fromiter(extra_ids, np.int32)
        return np.unique(np.concatenate((np.arange(self.frequent, dtype=np.int32), extra, *entries)))

    def write(self, path: Path) -> None:
        """Writes the file."""
        ids = np.pad(self.ids, (0, len(self.ids) % 2))
        header = np.array([(MAGIC, 0, self.frequent, self.best, len(self.offsets), len(ids))], _HEADER)
        body = self.offsets.astype("<u8").tobytes() + ids.astype("<u4").tobytes()
        header["checksum"] = _checksum(header.tobytes() + body)
        path.write_bytes(header.tobytes() + body)


def read_shortlist(path: Path, source_vocabulary: int, target_vocabulary: int) -> Shortlist:
    """Maps the shortlist of two vocabularies, given their numbers of tokens, into memory.

    Raises:
        OSError: if the file cannot be read.
        ShortlistError: if it is no shortlist, or if it does not fit the vocabularies. The checksum is not compared.
    """
    with open_file(path) as file:
        content = np.memmap(file, np.uint8, "r") if file.seek(0, 2) else np.zeros(0, np.uint8)
    if len(content) < _HEADER.itemsize:
        raise ShortlistError(f"{path}: {len(content)} bytes, expected at least {_HEADER.itemsize}")
    magic, _, frequent, best, offsets, ids = (int(number) for number in content[: _HEADER.itemsize].view(_HEADER)[0])
    end = _HEADER.itemsize + offsets * _OFFSET_BYTES
    for field, actual, expected in (
        ("magic", f"{magic:#x}", f"{MAGIC:#x}"),
        ("offsets", offsets, source_vocabulary + 1),
        ("bytes", len(content), end + ids * _ID_BYTES),
    ):
        if actual != expected:
            raise ShortlistError(f"{path}: {field}: {actual}, expected {expected}")
    if frequent > target_vocabulary:
        raise ShortlistError(f"{path}: frequent: {frequent}, expected at most {target_vocabulary}")
    found = Shortlist(
        frequent,
        best,
        content[_HEADER.itemsize : end].view("<u8").view(np.int64),
        content[end:].view("<u4").view(np.int32),
    )
    _check_values(path, found, target_vocabulary)
    return found


def check_checksum(path: Path) -> None:
    """Raises ShortlistError if the checksum of a file is wrong; takes a second for ten million bytes."""
    content = path.read_bytes()
    expected, actual = int.from_bytes(content[8:16], "little"), _checksum(content)
    if actual != expected:
        raise ShortlistError(f"{path}: checksum: {actual:#x}, expected {expected:#x}: the file is damaged")


def _check_values(path: Path, found: Shortlist, target_vocabulary: int) -> None:
    offsets, ids = found.offsets, found.ids
    # Numbers above the range of int64 or int32 are negative here.
    if offsets[0] != 0 or offsets[-1] > len(ids) or (np.diff(offsets) < 0).any():
        raise ShortlistError(f"{path}: offsets: expected ascending ones from 0 to at most {len(ids)}")
    if len(ids) and not 0 <= ids.min() <= ids.max() < target_vocabulary:
        raise ShortlistError(f"{path}: ids: expected numbers below {target_vocabulary}")


def _checksum(content: bytes) -> int:
    """Returns Marian's hash of all 8 bytes after the checksum, without the last 4 of an odd number of ids."""
    start = 2 * _OFFSET_BYTES
    words = np.frombuffer(content, "<u8", count=(len(content) - start) // _OFFSET_BYTES, offset=start)
    found = 0
    for word in words.tolist():
        found ^= (word + 0x9E3779B9 + (found << 6) + (found >> 2)) & 0xFFFFFFFFFFFFFFFF
    return found
