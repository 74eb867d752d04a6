"""Similar texts: an index of shingles finds candidates, and their edits decide.

A shingle is a run of characters of a pattern without letter case. The index has the smallest hashes of the shingles of
each entry: similar texts share some of them. It consists of postings, which are a hash and the id of an entry in 8
bytes, in chunks by the last bits of the hash. Postings of deleted entries stay while they are the smaller part.
"""

from collections.abc import Sequence
from itertools import compress

import numpy as np
import numpy.typing as npt
import sqlalchemy as sa
from rapidfuzz.distance import Levenshtein

from dragoman.serve.memory.entry import Pair
from dragoman.serve.memory.tables import COLUMNS, SHINGLES

# Least similarity of a suggestion.
MIN_SIMILARITY = 0.7
# A longer pattern has no similar ones.
MAX_CHARACTERS = 1000
# The most entries that are compared with a text.
MAX_CANDIDATES = 500
_HASHES_PER_TEXT = 12
# The characters of shingles, and the characters of a pattern from which on they are long.
_SHORT, _LONG, _LONG_TEXT = 3, 6, 24
_BUCKETS = 1024
_PRUNED_BUCKETS = 64
_CHUNK_BYTES = 4096
# The look-up of a text reads so many chunks at most, in the order of the database; a full store has fewer for a text.
# It counts so many postings, those of rare shingles first.
_MAX_CHUNKS = 4096
_MAX_POSTINGS = 150_000
# Texts whose shingles are in memory at once, about 50 MB at most.
_TEXTS = 1000
_POSTING = np.dtype([("hash", "<u4"), ("entry", "<u4")])
_FACTOR = np.uint64(0x9E3779B97F4A7C15)

Numbers = npt.NDArray[np.integer]
Postings = npt.NDArray[np.void]


def similarity_of(key: str, other: str) -> float:
    """Returns the similarity of two patterns without letter case, 0 if it is below `MIN_SIMILARITY`.

    It is 1 - edits / characters of the longer pattern. An edit inserts, deletes or replaces a character. Numbers,
    placeholders and tags are one character each, and equal.
    """
    return Levenshtein.normalized_similarity(key, other, score_cutoff=MIN_SIMILARITY)


def add_to_index(connection: sa.Connection, memory_id: int, pair: Pair, entries: Sequence[tuple[int, str]]) -> None:
    """Adds entries to the index of a memory, by their ids and the keys of their patterns."""
    indexed = [(entry, key) for entry, key in entries if len(key) <= MAX_CHARACTERS]
    parts = [_postings(indexed[start : start + _TEXTS], pair) for start in range(0, len(indexed), _TEXTS)]
    if parts:
        _store(connection, memory_id, np.concatenate(parts))


def prune_index(connection: sa.Connection, memory_id: int, count: int) -> None:
    """Deletes the postings of deleted entries if the index is twice as large as that of the `count` others may be."""
    columns, own = SHINGLES.c, SHINGLES.c.memory_id == memory_id
    size_bytes = connection.execute(sa.select(sa.func.sum(sa.func.length(columns.postings))).where(own)).scalar() or 0
    if size_bytes <= 2 * _POSTING.itemsize * _HASHES_PER_TEXT * count:
        return
    ids = sa.select(COLUMNS.id).where(COLUMNS.memory_id == memory_id, COLUMNS.version > 0)
    left = np.fromiter(connection.execute(ids).scalars(), np.uint32)
    for first in range(0, _BUCKETS, _PRUNED_BUCKETS):
        part = own, columns.bucket.between(first, first + _PRUNED_BUCKETS - 1)
        postings = np.frombuffer(
            b"".join(connection.execute(sa.select(columns.postings).where(*part)).scalars()), _POSTING
        )
        connection.execute(sa.delete(SHINGLES).where(*part))
        if len(kept := postings[np.isin(postings["entry"], left)]):
            _store(connection, memory_id, kept)


def find_candidates(connection: sa.Connection, readable: sa.Select[int, bytes], pair: Pair, key: str) -> Sequence[int]:
    """Returns ids of entries that may be similar to a pattern, at most `MAX_CANDIDATES`; some may be deleted.

    Args:
        readable: a query for the buckets and postings of the memories.
    """
    sizes = sorted({_size(int(len(key) * factor)) for factor in (MIN_SIMILARITY, 1, 1 / MIN_SIMILARITY)})
    _, hashes = _hashes([key] * len(sizes), sizes, pair)
    parts = {bucket: list[bytes]() for bucket in (hashes % _BUCKETS).tolist()}
    if not parts:
        return []
    for bucket, chunk in connection.execute(readable.where(SHINGLES.c.bucket.in_(parts)).limit(_MAX_CHUNKS)):
        parts[bucket].append(chunk)
    buckets = {bucket: np.frombuffer(b"".join(chunks), _POSTING) for bucket, chunks in parts.items()}
    # Each step is short, so that the event loop gets the interpreter's lock.
    stored = [(buckets[shingle % _BUCKETS], shingle) for shingle in set(hashes.tolist())]
    lists = sorted((postings["entry"][postings["hash"] == shingle] for postings, shingle in stored), key=len)
    counted = np.cumsum([len(found) for found in lists]) <= _MAX_POSTINGS
    counted[0] = True
    ids = np.concatenate(list(compress(lists, counted)))[:_MAX_POSTINGS]
    found, shared = np.unique(ids, return_counts=True)
    # NumPy sorts numbers of 8 bits by radix.
    best = np.argsort(-shared.astype(np.int8), kind="stable")[:MAX_CANDIDATES]
    return [int(entry) for entry in found[best]]


def _size(characters: int) -> int:
    return _LONG if characters >= _LONG_TEXT else _SHORT


def _postings(entries: Sequence[tuple[int, str]], pair: Pair) -> Postings:
    ids, keys = zip(*entries, strict=True)
    owners, hashes = _hashes(keys, [_size(len(key)) for key in keys], pair)
    postings = np.empty(len(hashes), _POSTING)
    postings["hash"], postings["entry"] = hashes, np.array(ids)[owners]
    return postings


def _hashes(keys: Sequence[str], sizes: Sequence[int], pair: Pair) -> tuple[Numbers, Numbers]:
    """Returns the smallest hashes of shingles of a size per pattern: index of the pattern [n], hash [n]."""
    marked = [f"\x02{key}\x03" for key in keys]
    codes = np.frombuffer("".join(marked).encode("utf-32-le", "surrogatepass"), "<u4").astype(np.uint64)
    owner = np.repeat(np.arange(len(marked)), [len(text) for text in marked])
    seed = np.frombuffer("\0".join(pair).encode().ljust(8, b"\0")[:8], "<u8")
    found = list[Numbers]()
    for size in set(sizes):
        # Each window of `size` characters of the joined patterns; those that cross an end do not count.
        count = max(0, len(codes) - size + 1)
        mixed = np.repeat(seed, count)
        for offset in range(size):
            mixed = (mixed ^ codes[offset : offset + count]) * _FACTOR
            mixed ^= mixed >> np.uint64(29)
        first, last = owner[:count], owner[size - 1 :]
        valid = (first == last) & (np.array(sizes)[first] == size)
        found.append((first[valid].astype(np.uint64) << np.uint64(32)) | (mixed[valid] >> np.uint64(32)))
    # Sorted by pattern, then hash.
    both = np.sort(np.concatenate(found))
    both = both[np.diff(both, prepend=np.uint64(0)) != 0]
    owners = (both >> np.uint64(32)).astype(np.int64)
    ranks = np.arange(len(both)) - np.searchsorted(owners, owners)
    kept = ranks < _HASHES_PER_TEXT
    return owners[kept], (both[kept] & np.uint64(0xFFFFFFFF)).astype(np.int64)


def _store(connection: sa.Connection, memory_id: int, postings: Postings) -> None:
    """Appends postings to the last chunks of their buckets, or begins new ones."""
    columns, buckets = SHINGLES.c, postings["hash"] % _BUCKETS
    order = np.argsort(buckets, kind="stable")
    present, counts = np.unique(buckets, return_counts=True)
    parts = dict(zip(present.tolist(), np.split(postings[order], np.cumsum(counts)[:-1]), strict=True))
    last = sa.select(sa.func.max(columns.id)).where(columns.memory_id == memory_id, columns.bucket.in_(parts))
    chosen = columns.id.in_(last.group_by(columns.bucket)), sa.func.length(columns.postings) < _CHUNK_BYTES
    opened = connection.execute(sa.select(SHINGLES).where(*chosen)).all()
    begun = {row.bucket: row.postings for row in opened}
    connection.execute(sa.delete(SHINGLES).where(columns.id.in_([row.id for row in opened])))
    rows = [
        {"memory_id": memory_id, "bucket": bucket, "postings": data[start : start + _CHUNK_BYTES]}
        for bucket, part in parts.items()
        for data in [begun.get(bucket, b"") + part.tobytes()]
        for start in range(0, len(data), _CHUNK_BYTES)
    ]
    connection.execute(sa.insert(SHINGLES), rows)
