"""Stored memories: pairs of texts by name, in the database of the state directory.

A memory belongs to the API key that made it, or to all: other keys neither see nor use that of a key, and every query
has that condition. A shared memory is changed by the operator and by keys that may approve. Each change raises the
version of its memory. All methods may wait for the database.
"""

import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress, islice, repeat
from typing import Any, NamedTuple

import sqlalchemy as sa

from dragoman.serve.errors import ForbiddenError, InvalidRequestError, MemoryNotFoundError, MemoryStoreFullError
from dragoman.serve.host.state import State, largest_share
from dragoman.serve.memory.entry import MAX_LANGUAGE_CHARACTERS, Client, Entry, Pair, Suggestion
from dragoman.serve.memory.pattern import Pattern, read_pattern
from dragoman.serve.memory.similar import (
    MAX_CANDIDATES,
    MAX_CHARACTERS,
    Shingles,
    add_to_index,
    find_candidates,
    prune_index,
    read_shingles,
    similarity_of,
)
from dragoman.serve.memory.tables import (
    CHOSEN,
    COLUMNS,
    ENTRIES,
    MAX_NAME_CHARACTERS,
    MEMORIES,
    POSTINGS,
    SHARED,
    SHOWN,
    SIZE,
    TABLES,
    TEXTS,
    USABLE,
    VERSION,
    Query,
    any_of,
    insert_rows,
)

MAX_TEXT_CHARACTERS = 10_000
# The limits of all clients together; see `largest_share`.
MAX_STORED_ENTRIES = 4_000_000
MAX_STORED_BYTES = 2 << 30
# Entries per transaction, so that other writers wait for less than a second.
BATCH = 20_000
# What no two entries of a memory have in common.
_CONTENT = ("digest", "source", "target")
# Other writers of SQLite try every 0.1 s, and would fail if one transaction followed the other.
_PAUSE_SECONDS = 0.1
_TEXTS_PER_QUERY = 500
_ENTRIES_PER_KEY = 20
# Suggestions for a text.
MAX_SUGGESTIONS = 3
_SURROGATES = re.compile("[\ud800-\udfff]")


class Memory(NamedTuple):
    """A stored memory without its entries; `changed_seconds`: a Unix time."""

    id: int
    name: str
    shared: bool
    version: int
    entry_count: int
    changed_seconds: float


# What each request asks. A query takes a millisecond to build, a multiple of its execution.
_SHARED = (MEMORIES.c.account == SHARED).label("shared")
_LISTED = sa.select(*(MEMORIES.c.get(name, _SHARED) for name in Memory._fields)).where(USABLE)
_MEMORIES = _LISTED.order_by(MEMORIES.c.name, _SHARED)
_NAMED = Query(_MEMORIES.where(MEMORIES.c.name.in_(any_of("names"))))
_GROUP = (COLUMNS.memory_id, COLUMNS.digest)
_ORDER = (COLUMNS.source.in_(any_of("texts")).desc(), COLUMNS.id.desc())
_PLACED = (
    sa.select(COLUMNS.id, *_GROUP, COLUMNS.source, COLUMNS.target)
    .add_columns(sa.func.row_number().over(partition_by=_GROUP, order_by=_ORDER).label("place"))
    .select_from(ENTRIES.join(MEMORIES))
    .where(CHOSEN, COLUMNS.version > 0)
    .where(*(COLUMNS[name] == sa.bindparam(name) for name in Pair._fields))
    .where(COLUMNS.digest.in_(any_of("digests", sa.BigInteger)))
    .subquery()
)
# Entries by digest and memory: those with the spelling of a text, then the newest.
_EQUAL = Query(sa.select(_PLACED).where(_PLACED.c.place <= _ENTRIES_PER_KEY))
# The limit makes the database read the entries by their ids, not all of the memories.
_CANDIDATES = (
    sa.select(ENTRIES)
    .where(COLUMNS.id.in_(any_of("ids", sa.Integer)), sa.func.length(COLUMNS.source) <= 2 * MAX_CHARACTERS)
    .limit(MAX_CANDIDATES)
    .subquery()
)
_COMPARED = Query(
    sa.select(*(_CANDIDATES.c[name] for name in ("id", "memory_id", "source", "target")))
    .join(MEMORIES, (MEMORIES.c.id == _CANDIDATES.c.memory_id) & CHOSEN)
    .where(_CANDIDATES.c.version > 0, *(_CANDIDATES.c[name] == sa.bindparam(name) for name in Pair._fields))
)


class Wanted(NamedTuple):
    """Which entries are meant; None: all. `before_seconds`: those that are older than a Unix time."""

    source_language: str | None = None
    target_language: str | None = None
    origin: str | None = None
    author: str | None = None
    before_seconds: float | None = None

    def conditions(self, columns: sa.ColumnCollection[str, Any] = COLUMNS) -> Iterator[sa.ColumnElement[bool]]:
        """Yields the conditions of a query for entries, or for what has their columns."""
        yield columns.version > 0
        *equal, before_seconds = self
        yield from (
            columns[name] == value for name, value in zip(self._fields, equal, strict=False) if value is not None
        )
        if before_seconds is not None:
            yield columns.created_seconds < before_seconds


class Batch(NamedTuple):
    """Different entries for one transaction, by column without memory and version; columns may repeat a value."""

    columns: Mapping[str, Iterable[Any]]
    shingles: Shingles


class MemoryStore:
    """Finds, adds, lists and deletes the entries of the memories of each client. Thread-safe."""

    def __init__(self, state: State) -> None:
        """Creates the tables if they are missing."""
        state.create(TABLES)
        self._state = state

    def list_all(self, client: Client) -> list[Memory]:
        """Returns the memories of a client: by name, its own before a shared one."""
        with self._state.reading() as connection:
            rows = connection.execute(_MEMORIES, {"accounts": dict.fromkeys(accounts_of(client))})
            return [Memory(*row) for row in rows]

    def recall(self, client: Client, names: Sequence[str], pair: Pair) -> "Recall":
        """Returns what finds texts in the memory of each name, the client's first; raises MemoryNotFoundError."""
        with self._state.reading() as connection:
            return Recall(self._state, accounts_of(client), _named(connection, client, names), pair)

    def add(self, client: Client, name: str, pair: Pair, entries: Iterable[Entry], *, shared: bool = False) -> int:
        """Adds entries to a memory, which is made if it is missing, and returns how many are new.

        Raises InvalidRequestError, ForbiddenError or MemoryStoreFullError; what was added before stays.
        """
        return self.add_batches(client, name, prepare_batches(pair, entries, client.author), shared=shared)

    def add_batches(self, client: Client, name: str, batches: Iterable[Batch], *, shared: bool = False) -> int:
        """Adds entries as `add` does."""
        account, added = _writable(client, shared=shared), 0
        for number, batch in enumerate(batches):
            time.sleep(_PAUSE_SECONDS if number else 0)
            with self._state.writing() as connection:
                added += _insert_new(connection, memory_id(connection, account, name), batch)
                check_share(connection, account)
        return added

    def entries(
        self, client: Client, name: str, wanted: Wanted, *, after: int = 0, limit: int = BATCH
    ) -> list[sa.Row[Any]]:
        """Returns `SHOWN` of entries with ids above one, in their order; without authors those of a shared memory.

        A client that may approve gets the authors too. Raises MemoryNotFoundError, or ForbiddenError for a filter by
        authors that the client may not see.
        """
        with self._state.reading() as connection:
            (memory,) = _named(connection, client, [name])
            sees_authors = client.approves or not memory.shared
            if wanted.author is not None and not sees_authors:
                raise ForbiddenError("author: expected an API key that may approve, for a shared memory")
            shown = [column for column in SHOWN if sees_authors or column is not COLUMNS.author]
            query = sa.select(*shown).where(COLUMNS.memory_id == memory.id, COLUMNS.id > after, *wanted.conditions())
            return list(connection.execute(query.order_by(COLUMNS.id).limit(limit)))

    def texts(self, client: Client, name: str, pair: Pair) -> Iterator[Entry]:
        """Yields all entries for a pair of languages; raises MemoryNotFoundError."""
        after = 0
        while found := self.entries(client, name, Wanted(*pair), after=after):
            after = found[-1].id
            yield from (Entry(row.source, row.target, row.context) for row in found)

    def delete(self, client: Client, name: str, wanted: Wanted | None = None) -> int:
        """Deletes entries of a memory, with None all of it, and returns how many; raises ServiceError if it may not."""
        with self._state.writing() as connection:
            (memory,) = _named(connection, client, [name])
            _writable(client, shared=memory.shared)
            own = COLUMNS.memory_id == memory.id, *(() if wanted is None else wanted.conditions())
            size_bytes = connection.execute(sa.select(sa.func.sum(SIZE)).where(*own)).scalar() or 0
            count = connection.execute(sa.delete(ENTRIES).where(*own)).rowcount
            grow(connection, memory.id, -count, -int(size_bytes))
            if wanted is None:
                connection.execute(sa.delete(MEMORIES).where(MEMORIES.c.id == memory.id))
            else:
                prune_index(connection, memory.id, memory.entry_count - count)
        return count

    def rebuild_index(self) -> int:
        """Builds the index of similar texts of all memories again, and returns the number of entries.

        Until it ends, look-ups miss similar texts. It holds the lock of writers for a batch at a time.
        """
        with self._state.writing() as connection:
            # The index of earlier versions.
            connection.execute(sa.text("DROP TABLE IF EXISTS memory_shingles"))
            connection.execute(sa.delete(POSTINGS))
            memories = connection.execute(sa.select(MEMORIES.c.id, MEMORIES.c.version)).all()
        count = 0
        for memory, version in memories:
            # The server adds entries of later versions with their postings.
            own = sa.select(ENTRIES).where(COLUMNS.memory_id == memory, COLUMNS.version.between(1, version))
            last: int | None = 0
            while last is not None:
                with self._state.writing() as connection:
                    rows = connection.execute(own.where(COLUMNS.id > last).order_by(COLUMNS.id).limit(BATCH)).all()
                    index_rows(connection, rows)
                count, last = count + len(rows), rows[-1].id if rows else None
                time.sleep(_PAUSE_SECONDS)
        return count


@dataclass(frozen=True, slots=True)
class Recall:
    """Finds texts in memories, those that count first. Thread-safe.

    Attributes:
        accounts: those whose memories are usable; others find nothing.
        whole_texts: whether only whole texts are to be found, not their sentences.
    """

    state: State
    accounts: tuple[str, ...]
    memories: Sequence[Memory]
    pair: Pair
    whole_texts: bool = False

    @property
    def _usable(self) -> dict[str, object]:
        """The parameters of `CHOSEN`, and the languages."""
        ids = (memory.id for memory in self.memories)
        return {"accounts": dict.fromkeys(self.accounts), "memories": dict.fromkeys(ids), **self.pair._asdict()}

    def find(self, patterns: Mapping[str, Pattern]) -> dict[str, list[Entry]]:
        """Returns the entries that equal texts, by their keys: those of an earlier memory first, then the newest."""
        keys = {_digest(self.pair, pattern.key): pattern.key for pattern in patterns.values()}
        numbers = {memory.id: number for number, memory in enumerate(self.memories)}
        digests = {key: digest for digest, key in keys.items()}
        left, found = iter(patterns), dict[int, Any]()
        with self.state.reading() as connection:
            while texts := {text: digests[patterns[text].key] for text in islice(left, _TEXTS_PER_QUERY)}:
                # The store keeps texts without surrogates and null characters.
                spelled = {text.encode(errors="replace").decode().replace("\0", ""): None for text in texts}
                wanted = {**self._usable, "texts": spelled, "digests": dict.fromkeys(texts.values())}
                found |= {row.id: row for row in _EQUAL.rows(connection, wanted)}
        matches: dict[str, list[Entry]] = {}
        for row in sorted(found.values(), key=lambda row: (numbers[row.memory_id], -row.id)):
            matches.setdefault(keys[row.digest], []).append(Entry(row.source, row.target))
        return matches

    def find_similar(self, text: str, *, markup: bool = False) -> list[Suggestion]:
        """Returns similar entries: the most similar ones first, then those of an earlier memory, then the newest."""
        key = read_pattern(text, markup=markup).key
        if len(key) > MAX_CHARACTERS:
            return []
        names = {memory.id: memory.name for memory in self.memories}
        order = list(names)
        with self.state.reading() as connection:
            ids = find_candidates(connection, self._usable, self.pair, key)
            rows = _COMPARED.rows(connection, {**self._usable, "ids": dict.fromkeys(ids)})
        rated = [(similarity_of(key, read_pattern(row.source).key), row) for row in rows]
        rated.sort(key=lambda item: (-item[0], order.index(item[1].memory_id), -item[1].id))
        found = dict[str, Suggestion]()
        for rating, row in rated:
            if rating and row.target not in found and len(found) < MAX_SUGGESTIONS:
                found[row.target] = Suggestion(row.source, row.target, rating, names[row.memory_id])
        return list(found.values())


def _named(connection: sa.Connection, client: Client, names: Sequence[str]) -> list[Memory]:
    """Returns the memory of each name, the client's own before a shared one; raises MemoryNotFoundError."""
    # No memory has a name with surrogates or controls, which PostgreSQL does not take.
    wanted = {"accounts": accounts_of(client), "names": filter(str.isprintable, names)}
    rows = _NAMED.rows(connection, {field: dict.fromkeys(values) for field, values in wanted.items()})
    found = {row.name: Memory(*row) for row in reversed(rows)}
    missing = next((name for name in names if name not in found), None)
    if missing is not None:
        raise MemoryNotFoundError(f"memory {missing[:MAX_NAME_CHARACTERS]!a}: unknown")
    return [found[name] for name in names]


def usable(client: Client) -> sa.ColumnElement[bool]:
    """Returns the condition of the memories that a client may use."""
    return MEMORIES.c.account.in_(accounts_of(client))


def accounts_of(client: Client) -> tuple[str, ...]:
    """Returns the accounts whose memories a client may use."""
    return client.account or SHARED, SHARED


def _writable(client: Client, *, shared: bool) -> str:
    """Returns the account of a memory that is changed; raises ForbiddenError if the client may not change it."""
    if not (client.approves if shared else client.account):
        needed = "that may approve, for a shared one" if shared else "whose memory it is"
        raise ForbiddenError(f"memory: expected an API key {needed}")
    return SHARED if shared else client.account or SHARED


def prepare_batches(pair: Pair, entries: Iterable[Entry], author: str) -> Iterator[Batch]:
    """Yields entries for an import; raises InvalidRequestError for an invalid one."""
    left = iter(entries)
    while batch := list(islice(left, BATCH)):
        yield prepare(pair, batch, "import", author)


def prepare(pair: Pair, entries: Iterable[Entry], origin: str, author: str, translation: str = "") -> Batch:
    """Returns entries, at least one; raises InvalidRequestError for an invalid one."""
    common = {**pair._asdict(), "origin": origin, "author": author, "created_seconds": time.time()}
    for field, code in pair._asdict().items():
        _check(field, code, MAX_LANGUAGE_CHARACTERS)
    rows = dict[tuple[Any, ...], tuple[Any, ...]]()
    for entry in entries:
        # PostgreSQL has no null characters.
        texts = [text.replace("\0", "") for text in (*entry, translation)]
        for field, text in zip(TEXTS, texts, strict=True):
            least = field in ("source", "target")
            is_valid = text.isascii() or not _SURROGATES.search(text)
            if not is_valid or len(text) > MAX_TEXT_CHARACTERS or (least and not text.strip()):
                expected = f"{int(least)} to {MAX_TEXT_CHARACTERS}, not blank and no surrogates"
                raise InvalidRequestError(field, f"{len(text)} characters, expected {expected}")
        key = read_pattern(texts[0]).key
        rows[_digest(pair, key), *texts[:2]] = *texts[2:], key
    *others, keys = zip(*rows.values(), strict=True)
    columns: dict[str, Iterable[Any]] = {name: repeat(value) for name, value in common.items()}
    columns |= zip(("digest", *TEXTS), (*zip(*rows, strict=True), *others), strict=True)
    return Batch(columns, read_shingles(keys, pair))


def _check(field: str, text: str, most: int) -> None:
    if not text.strip() or len(text) > most or not text.isprintable():
        raise InvalidRequestError(field, f"expected 1 to {most} printable characters")


def _insert_new(connection: sa.Connection, into: int, batch: Batch) -> int:
    """Adds those entries to a memory that it does not have, and returns how many."""
    columns, is_known = batch.columns, COLUMNS.digest.in_(any_of("digests", sa.BigInteger))
    stored = sa.select(*(COLUMNS[name] for name in _CONTENT)).where(COLUMNS.memory_id == into, COLUMNS.version > 0)
    known = set(map(tuple, connection.execute(stored.where(is_known), {"digests": dict.fromkeys(columns["digest"])})))
    new = [content not in known for content in zip(*(columns[name] for name in _CONTENT), strict=True)]
    if added := sum(new):
        size_bytes = sum(sum(map(len, compress(columns[name], new))) for name in TEXTS)
        counted = {"memory_id": repeat(into), VERSION: repeat(grow(connection, into, added, size_bytes)), **columns}
        values = [counted[column.name] for column in COLUMNS if not column.primary_key]
        last = connection.execute(sa.select(sa.func.max(COLUMNS.id))).scalar() or 0
        insert_rows(connection, ENTRIES, list(compress(zip(*values, strict=False), new)))
        ids = sa.select(COLUMNS.id).where(COLUMNS.id > last).order_by(COLUMNS.id)
        left = iter(connection.execute(ids).scalars().all())
        add_to_index(connection, into, batch.shingles, [next(left) if is_new else 0 for is_new in new])
    return added


def index_rows(connection: sa.Connection, rows: Iterable[sa.Row[Any]]) -> None:
    """Adds stored entries to the index of similar texts."""
    indexed = defaultdict[tuple[int, Pair], dict[int, str]](dict)
    for row in rows:
        pair = Pair(row.source_language, row.target_language)
        indexed[row.memory_id, pair][row.id] = read_pattern(row.source).key
    for (memory, pair), keys in indexed.items():
        add_to_index(connection, memory, read_shingles(list(keys.values()), pair), list(keys))


def memory_id(connection: sa.Connection, account: str, name: str, field: str = "name") -> int:
    """Returns the id of a memory, which is made if it is missing; raises InvalidRequestError for an invalid name."""
    _check(field, name, MAX_NAME_CHARACTERS)
    query = sa.select(MEMORIES.c.id).where(MEMORIES.c.account == account, MEMORIES.c.name == name)
    found = connection.execute(query).scalar()
    if found is None:
        counts = dict.fromkeys((VERSION, "entry_count", "entry_bytes", "changed_seconds"), 0)
        made = sa.insert(MEMORIES).values(account=account, name=name, **counts).returning(MEMORIES.c.id)
        found = connection.execute(made).scalar_one()
    return int(found)


def grow(connection: sa.Connection, changed_id: int, count: int, size_bytes: int) -> int:
    """Notes a change of a memory, and returns its version."""
    columns = MEMORIES.c
    grown = {"entry_count": columns.entry_count + count, "entry_bytes": columns.entry_bytes + size_bytes}
    changed = sa.update(MEMORIES).where(columns.id == changed_id)
    changed = changed.values(**grown, version=columns.version + 1, changed_seconds=time.time())
    return int(connection.execute(changed.returning(columns.version)).scalar_one())


def check_share(connection: sa.Connection, account: str) -> None:
    """Raises MemoryStoreFullError if a key has more than its share of the store, or the store is full."""
    columns = MEMORIES.c
    limits = ("entries", columns.entry_count, MAX_STORED_ENTRIES), ("bytes", columns.entry_bytes, MAX_STORED_BYTES)
    for what, column, limit in limits:
        total = sa.func.sum(column)
        sums = connection.execute(sa.select(total, total.filter(columns.account == account))).one()
        stored, owned = (int(size or 0) for size in sums)
        if owned > (most := largest_share(limit, stored - owned, first=account == SHARED)):
            raise MemoryStoreFullError(f"{owned} {what} of this client, expected at most {most}: delete some")


def _digest(pair: Pair, key: str) -> int:
    """Returns 64 bits of the hash of a pair of languages and a pattern, as a signed number."""
    data = "\0".join((*pair, key)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), signed=True)
