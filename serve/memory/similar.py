"""Similar texts: an index of shingles finds candidates, and their edits decide.

A shingle is a run of characters of a pattern without letter case. The index has the smallest hashes of the shingles of
each entry: similar texts share some of them. It consists of postings, in chunks by the last 10 bits of the hash. A
posting is a number of 64 bits: the other 22 bits of the hash, 32 of the id of the entry, and 10 of the length of its
pattern; a text is only similar to those of similar length. Postings of deleted entries stay while they are the smaller
part.
"""

from collections.abc import Mapping, Sequence
from itertools import compress
from math import ceil
from zlib import crc32

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from rapidfuzz.distance import Levenshtein

from dragoman.serve.memory.entry import Pair
from dragoman.serve.memory.tables import CHOSEN, COLUMNS, MEMORIES, POSTINGS, Query, any_of, insert_rows

# Least similarity of a suggestion.
MIN_SIMILARITY = 0.7
# A longer pattern has no similar ones.
MAX_CHARACTERS = 1000
# The most entries that are compared with a text.
MAX_CANDIDATES = 200
_HASHES_PER_TEXT = 12
# The characters of shingles, and the characters of a pattern from which on they are long.
_SHORT, _LONG, _LONG_TEXT = 3, 6, 24
_BUCKETS = 1024
_PRUNED_BUCKETS = 64
# A row of this size takes one page of SQLite, a larger one two.
_CHUNK_BYTES = 4000
# The look-up of a text reads so many chunks at most, in the order of the database; a full store has fewer for a text.
# It counts so many postings of similar length, those of rare shingles first.
_MAX_CHUNKS = 4096
_MAX_POSTINGS = 150_000
# What the difference of two lengths, in parts of the text, outweighs in shared hashes.
_LENGTH_WEIGHT = 2
# Texts whose shingles are in memory at once, about 50 MB at most.
_TEXTS = 1000
_POSTING = np.dtype("<u8")
_HASH_BIT, _ENTRY_BIT = np.uint64(42), np.uint64(10)
_LENGTHS, _ENTRIES = np.uint64((1 << 10) - 1), np.uint64((1 << 42) - 1)
_FACTORS = np.array([0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1, 0x7FEB352D], np.uint32)

_CHUNKS = Query(
    sa.select(POSTINGS.c.bucket, POSTINGS.c.postings)
    .select_from(POSTINGS.join(MEMORIES))
    .where(CHOSEN, POSTINGS.c.bucket.in_(any_of("buckets", sa.Integer)))
    .limit(_MAX_CHUNKS)
)

Numbers = npt.NDArray[np.unsignedinteger]
# The characters of patterns [patterns]; for each of their smallest hashes, the pattern and 32 bits [hashes].
Shingles = tuple[Numbers, Numbers, Numbers]


def similarity_of(key: str, other: str) -> float:
    """Returns the similarity of two patterns without letter case, 0 if it is below `MIN_SIMILARITY`.

    It is 1 - edits / characters of the longer pattern. An edit inserts, deletes or replaces a character. Numbers,
    placeholders and tags are one character each, and equal.
    """
    return Levenshtein.normalized_similarity(key, other, score_cutoff=MIN_SIMILARITY)


def read_shingles(keys: Sequence[str], pair: Pair) -> Shingles:
    """Returns the hashes of patterns without letter case, for the index of a pair of languages."""
    lengths = np.array([len(key) for key in keys], _POSTING)
    parts = [(np.empty(0, _POSTING), np.empty(0, np.uint32))]
    for size in (_SHORT, _LONG):
        sized = [index for index, key in enumerate(keys) if _size(len(key)) == size]
        for start in range(0, len(sized), _TEXTS):
            part = sized[start : start + _TEXTS]
            owners, hashes = _hashes([keys[index] for index in part], size, pair)
            parts.append((np.array(part, _POSTING)[owners], hashes))
    owners, hashes = map(np.concatenate, zip(*parts, strict=True))
    return lengths, owners, hashes


def add_to_index(connection: sa.Connection, memory_id: int, shingles: Shingles, ids: Sequence[int]) -> None:
    """Adds entries to the index of a memory; `ids`: those of the entries by pattern, 0 for one that is not added."""
    lengths, owners, hashes = shingles
    entries = np.array(ids, _POSTING)
    kept = entries[owners] > 0
    if kept.any():
        ends = entries << _ENTRY_BIT | lengths
        postings = (hashes // _BUCKETS).astype(_POSTING) << _HASH_BIT | ends[owners]
        _store(connection, memory_id, (hashes % _BUCKETS)[kept], postings[kept])


def prune_index(connection: sa.Connection, memory_id: int, count: int) -> None:
    """Deletes the postings of deleted entries if the index is twice as large as that of the `count` others may be."""
    columns, own = POSTINGS.c, POSTINGS.c.memory_id == memory_id
    size_bytes = connection.execute(sa.select(sa.func.sum(sa.func.length(columns.postings))).where(own)).scalar() or 0
    if size_bytes <= 2 * _POSTING.itemsize * _HASHES_PER_TEXT * count:
        return
    ids = sa.select(COLUMNS.id).where(COLUMNS.memory_id == memory_id, COLUMNS.version > 0)
    left = np.fromiter(connection.execute(ids).scalars(), np.uint64)
    for first in range(0, _BUCKETS, _PRUNED_BUCKETS):
        part = own, columns.bucket.between(first, first + _PRUNED_BUCKETS - 1)
        rows = connection.execute(sa.select(columns.bucket, columns.postings).where(*part)).all()
        connection.execute(sa.delete(POSTINGS).where(*part))
        postings = np.frombuffer(b"".join(row.postings for row in rows), _POSTING)
        buckets = np.repeat([row.bucket for row in rows], [len(row.postings) // _POSTING.itemsize for row in rows])
        kept = np.isin((postings & _ENTRIES) >> _ENTRY_BIT, left)
        if kept.any():
            _store(connection, memory_id, buckets[kept], postings[kept])


def find_candidates(connection: sa.Connection, usable: Mapping[str, object], pair: Pair, key: str) -> Sequence[int]:
    """Returns ids of entries that may be similar to a pattern, at most `MAX_CANDIDATES`; some may be deleted.

    Args:
        usable: the parameters of `CHOSEN`.
    """
    least, most = ceil(len(key) * MIN_SIMILARITY), int(len(key) / MIN_SIMILARITY)
    sizes = {_size(length) for length in (least, len(key), most)} - {0}
    hashes = np.concatenate([_hashes([key], size, pair)[1] for size in sizes])
    parts = {bucket: list[bytes]() for bucket in (hashes % _BUCKETS).tolist()}
    if not parts:
        return []
    for bucket, chunk in _CHUNKS.rows(connection, {**usable, "buckets": dict.fromkeys(parts)}):
        parts[bucket].append(chunk)
    # Each step is short, so that the event loop gets the interpreter's lock.
    lists = list[Numbers]()
    for bucket, chunks in parts.items():
        postings = np.frombuffer(b"".join(chunks), _POSTING)
        lengths = postings & _LENGTHS
        postings = postings[(lengths >= least) & (lengths <= most)]
        wanted = np.unique(hashes[hashes % _BUCKETS == bucket] // _BUCKETS)
        lists += [postings[postings >> _HASH_BIT == high] & _ENTRIES for high in wanted]
    lists.sort(key=len)
    counted = np.cumsum([len(found) for found in lists]) <= _MAX_POSTINGS
    counted[0] = True
    found, shared = np.unique(np.concatenate(list(compress(lists, counted)))[:_MAX_POSTINGS], return_counts=True)
    differences = np.abs((found & _LENGTHS).astype(np.float32) - len(key)) / max(1, len(key))
    # NumPy sorts numbers of 16 bits by radix.
    ranks = ((_LENGTH_WEIGHT * differences - shared) * 256).astype(np.int16)
    best = np.argsort(ranks, kind="stable")[:MAX_CANDIDATES]
    return [int(entry) for entry in found[best] >> _ENTRY_BIT]


def _size(characters: int) -> int:
    if characters > MAX_CHARACTERS:
        return 0
    return _LONG if characters >= _LONG_TEXT else _SHORT


def _hashes(keys: Sequence[str], size: int, pair: Pair) -> tuple[Numbers, Numbers]:
    """Returns the smallest hashes of shingles of a size per pattern: index of the pattern [n], hash [n]."""
    marked = [f"\x02{key}\x03" for key in keys]
    codes = np.frombuffer("".join(marked).encode("utf-32-le", "surrogatepass"), "<u4")
    owner = np.repeat(np.arange(len(marked), dtype=_POSTING), [len(text) for text in marked])
    # Each window of `size` characters of the joined patterns; those that cross an end do not count.
    count = max(0, len(codes) - size + 1)
    mixed = np.full(count, crc32("\0".join(pair).encode()), np.uint32)
    for offset in range(size):
        mixed += codes[offset : offset + count] * _FACTORS[offset]
    for factor in _FACTORS[:2]:
        mixed = (mixed ^ (mixed >> np.uint32(15))) * factor
    mixed ^= mixed >> np.uint32(15)
    first = owner[:count]
    valid = first == owner[size - 1 :]
    # Sorted by pattern, then hash.
    both = np.sort(first[valid] << np.uint64(32) | mixed[valid])
    both = both[np.diff(both, prepend=np.uint64(0)) != 0]
    owners = both >> np.uint64(32)
    kept = np.ones(len(both), bool)
    kept[_HASHES_PER_TEXT:] = owners[_HASHES_PER_TEXT:] != owners[:-_HASHES_PER_TEXT]
    return owners[kept], both[kept].astype(np.uint32)


def _store(connection: sa.Connection, memory_id: int, buckets: Numbers, postings: Numbers) -> None:
    """Appends postings to the last chunks of their buckets, or begins new ones."""
    columns = POSTINGS.c
    order = np.argsort(buckets, kind="stable")
    present, counts = np.unique(buckets, return_counts=True)
    parts = dict(zip(present.tolist(), np.split(postings[order], np.cumsum(counts)[:-1]), strict=True))
    last = sa.select(sa.func.max(columns.id)).where(columns.memory_id == memory_id, columns.bucket.in_(parts))
    chosen = columns.id.in_(last.group_by(columns.bucket)), sa.func.length(columns.postings) < _CHUNK_BYTES
    opened = connection.execute(sa.select(POSTINGS).where(*chosen)).all()
    begun = {row.bucket: row.postings for row in opened}
    connection.execute(sa.delete(POSTINGS).where(columns.id.in_([row.id for row in opened])))
    rows = [
        (memory_id, bucket, data[start : start + _CHUNK_BYTES])
        for bucket, part in parts.items()
        for data in [begun.get(bucket, b"") + part.tobytes()]
        for start in range(0, len(data), _CHUNK_BYTES)
    ]
    insert_rows(connection, POSTINGS, rows)
