"""The indexes of dictionaries in memory, bounded in bytes in total and per client."""

import threading
from collections import Counter
from collections.abc import Callable

from dragoman.serve.protect.terms.matching import TermIndex

# An index of 100,000 entries takes about 40 MB.
MAX_INDEX_BYTES = 128 << 20
MAX_CLIENT_BYTES = MAX_INDEX_BYTES // 2


class IndexCache:
    """The indexes that were used last, by revision of their dictionary. Thread-safe.

    An index belongs to the client that used it first. Beyond the bound in total, the client with most bytes loses its
    least recently used index; beyond the bound per client, the client itself.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._indexes: dict[str, tuple[str, TermIndex]] = {}  # with the client; the least recently used first
        self._bytes = Counter[str]()

    @property
    def size_bytes(self) -> int:
        """Memory of all indexes."""
        with self._lock:
            return self._bytes.total()

    def find(self, revision: str, client: str, make: Callable[[], TermIndex]) -> TermIndex:
        """Returns the index of a dictionary; makes it if it is not in memory, one index at a time."""
        found = self._get(revision)
        if found is not None:
            return found
        with self._making:
            found = self._get(revision)
            if found is None:
                found = make()
                self._put(revision, client, found)
            return found

    def _get(self, revision: str) -> TermIndex | None:
        with self._lock:
            found = self._indexes.pop(revision, None)
            if found is None:
                return None
            self._indexes[revision] = found
            return found[1]

    def _put(self, revision: str, client: str, index: TermIndex) -> None:
        with self._lock:
            self._indexes[revision] = client, index
            self._bytes[client] += index.size_bytes
            while self._bytes[client] > MAX_CLIENT_BYTES:
                self._drop_oldest(client)
            while self._bytes.total() > MAX_INDEX_BYTES:
                self._drop_oldest(self._bytes.most_common(1)[0][0])

    def _drop_oldest(self, client: str) -> None:
        oldest = next(revision for revision, (owner, _) in self._indexes.items() if owner == client)
        self._bytes[client] -= self._indexes.pop(oldest)[1].size_bytes
        if not self._bytes[client]:
            del self._bytes[client]
