"""Corrections of clients: entries that wait, which no request finds, until a key with that right approves them.

Suggestions of earlier versions, in a table of their own, become corrections when the store is opened.
"""

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import sqlalchemy as sa

from dragoman.serve.errors import ForbiddenError, InvalidRequestError, MemoryNotFoundError, MemoryStoreFullError
from dragoman.serve.host.state import State, largest_share
from dragoman.serve.memory import store
from dragoman.serve.memory.entry import Client, Entry, Pair
from dragoman.serve.memory.tables import COLUMNS, ENTRIES, MEMORIES, SHARED, SHOWN, TABLES, TEXTS, WAITING

# Corrections of four texts of 10,000 characters each would take 400 MB.
MAX_CORRECTIONS = 10_000
# The memory of corrections, if neither the client nor the server names one.
DEFAULT_MEMORY = "corrections"
# A term that was corrected this many times the same way is proposed.
MIN_REPETITIONS = 3
_MAX_TERM_WORDS = 4
_CORRECTION = "correction"
_WORDS = re.compile(r"\w+")


class Correction(NamedTuple):
    """A text with its translation as it should be, and as the model made it; empty: unknown, or the default memory."""

    pair: Pair
    entry: Entry
    translation: str = ""
    memory: str = ""


class CorrectionStore:
    """The corrections of all clients. Thread-safe; all methods may wait for the database."""

    def __init__(self, state: State, memory: str | None = None) -> None:
        """Creates the tables that are missing, and moves suggestions of earlier versions; `memory`: the default one."""
        state.create(TABLES)
        self._state, self._memory = state, memory or DEFAULT_MEMORY
        with state.writing() as connection:
            if sa.inspect(connection).has_table("suggestions"):
                _move_suggestions(connection)

    def add(self, client: Client, correction: Correction) -> int:
        """Stores a correction for the memory of the client, or a shared one, and returns its id.

        Raises InvalidRequestError, MemoryStoreFullError without room, or StorageFullError without space.
        """
        counts = sa.select(sa.func.count(), sa.func.count().filter(COLUMNS.author == client.author))
        with self._state.writing() as connection:
            stored, owned = connection.execute(counts.where(WAITING)).one()
            if owned >= (most := largest_share(MAX_CORRECTIONS, stored - owned, first=owned == 0)):
                raise MemoryStoreFullError(f"{owned} corrections of this client wait, expected at most {most}")
            return _add(connection, client, correction._replace(memory=correction.memory or self._memory))

    def list_all(self, client: Client, *, after: int = 0, limit: int = store.BATCH) -> list[sa.Row[Any]]:
        """Returns corrections with ids above one, in their order; those of others only if the client may approve."""
        return self._read(_waiting(client).where(COLUMNS.id > after).order_by(COLUMNS.id).limit(limit))

    def approve(self, client: Client, ids: Sequence[int]) -> int:
        """Lets corrections count from now on, and returns how many there were.

        Raises ForbiddenError if the client may not approve, MemoryNotFoundError for an unknown id, MemoryStoreFullError
        if a memory has no room, or StorageFullError without space; then none counts.
        """
        if not client.approves:
            raise ForbiddenError("corrections: expected an API key that may approve")
        with self._state.writing() as connection:
            found = _find(connection, client, ids)
            for row in found:
                version = store.grow(connection, row.memory_id, 1, sum(len(getattr(row, name)) for name in TEXTS))
                connection.execute(sa.update(ENTRIES).where(COLUMNS.id == row.id).values(version=version))
            store.index_rows(connection, found)
            changed = MEMORIES.c.id.in_({row.memory_id for row in found})
            for account in connection.execute(sa.select(MEMORIES.c.account).where(changed).distinct()).scalars():
                store.check_share(connection, account)
        return len(found)

    def approved(self, pair: Pair) -> Iterator[Entry]:
        """Yields the approved corrections of all clients for a pair of languages."""
        shown, after = [COLUMNS[name] for name in ("id", *Entry._fields)], 0
        wanted = sa.select(*shown).where(*store.Wanted(*pair, origin=_CORRECTION).conditions()).order_by(COLUMNS.id)
        while found := self._read(wanted.where(COLUMNS.id > after).limit(store.BATCH)):
            after = found[-1].id
            yield from (Entry(row.source, row.target, row.context) for row in found)

    def delete(self, client: Client, ids: Sequence[int]) -> int:
        """Deletes corrections that the client may see, and returns how many; raises MemoryNotFoundError for others."""
        with self._state.writing() as connection:
            found = _find(connection, client, ids)
            connection.execute(sa.delete(ENTRIES).where(COLUMNS.id.in_([row.id for row in found])))
            # A memory that nothing but corrections has made goes with the last one.
            others = sa.exists().where(COLUMNS.memory_id == MEMORIES.c.id)
            touched = MEMORIES.c.id.in_({row.memory_id for row in found})
            connection.execute(sa.delete(MEMORIES).where(touched, MEMORIES.c.version == 0, ~others))
        return len(found)

    def terms(self, client: Client) -> list[dict[str, object]]:
        """Returns terms that `MIN_REPETITIONS` corrections replace alike; raises ForbiddenError."""
        if not client.approves:
            raise ForbiddenError("terms: expected an API key that may approve")
        return list(_terms(self.list_all(client, limit=MAX_CORRECTIONS)))

    def _read(self, query: sa.Select[Any]) -> list[sa.Row[Any]]:
        with self._state.reading() as connection:
            return list(connection.execute(query))


def _waiting(client: Client) -> sa.Select[Any]:
    """Returns a query for the corrections that a client may see."""
    visible = store.usable(client) if client.approves else COLUMNS.author == client.author
    visible = sa.true() if client.account is None else visible
    shown = *SHOWN, COLUMNS.translation, COLUMNS.memory_id, MEMORIES.c.name.label("memory")
    return sa.select(*shown).select_from(ENTRIES.join(MEMORIES)).where(WAITING, visible)


def _find(connection: sa.Connection, client: Client, ids: Sequence[int]) -> Sequence[sa.Row[Any]]:
    found = connection.execute(_waiting(client).where(COLUMNS.id.in_(ids))).all()
    if missing := set(ids) - {row.id for row in found}:
        raise MemoryNotFoundError(f"correction {min(missing)}: unknown")
    return found


def _add(connection: sa.Connection, client: Client, correction: Correction) -> int:
    columns = MEMORIES.c
    own = sa.select(columns.id).where(columns.account == client.account, columns.name == correction.memory)
    account = client.account if connection.execute(own).first() else SHARED
    memory_id = store.memory_id(connection, account or SHARED, correction.memory, "memory")
    batch = store.prepare(correction.pair, [correction.entry], _CORRECTION, client.author, correction.translation)
    row = {name: next(iter(values)) for name, values in batch.columns.items()}
    made = sa.insert(ENTRIES).values(**row, memory_id=memory_id, version=0).returning(COLUMNS.id)
    return int(connection.execute(made).scalar_one())


def _move_suggestions(connection: sa.Connection) -> None:
    """Makes the suggestions of earlier versions corrections, and drops their table."""
    old = sa.Table("suggestions", sa.MetaData(), autoload_with=connection)
    for row in connection.execute(sa.select(old).order_by(old.c.number)).mappings().all():
        entry = Entry(row["q"], row["s"])
        correction = Correction(Pair(row["source"], row["target"]), entry, memory=DEFAULT_MEMORY)
        with suppress(InvalidRequestError):  # longer than a text may be
            _add(connection, Client("", row.get("owner", "")), correction)
    old.drop(connection)


def _terms(corrections: Sequence[sa.Row[Any]]) -> Iterator[dict[str, object]]:
    """Yields a term per replacement of words that enough corrections share, with the longest common words of texts."""
    texts = defaultdict[tuple[str, str, str, str], dict[str, str]](dict)
    for row in corrections:
        if replaced := _replacement(row.translation, row.target):
            text = f" {' '.join(_WORDS.findall(row.source.casefold()))} "
            texts[row.source_language, row.target_language, *replaced][row.source] = text
    for (source_language, target_language, _, target), found in texts.items():
        first, *others = found.values()
        words, sizes = first.split(), range(1, _MAX_TERM_WORDS + 1)
        spans = {f" {' '.join(words[start : start + size])} " for start in range(len(words)) for size in sizes}
        common = [span for span in spans if all(span in other for other in others)]
        if len(found) >= MIN_REPETITIONS and common:
            pair = {"source_language": source_language, "target_language": target_language}
            yield {**pair, "source": max(common, key=len).strip(), "target": target, "corrections": len(found)}


def _replacement(translation: str, target: str) -> tuple[str, str] | None:
    """Returns the words of a translation that a correction replaces, and what by; None: not one group of words."""
    old, new = deque(_WORDS.findall(translation)), deque(_WORDS.findall(target))
    while old and new and old[0] == new[0]:
        old.popleft()
        new.popleft()
    while old and new and old[-1] == new[-1]:
        old.pop()
        new.pop()
    return (" ".join(old), " ".join(new)) if old and new and max(len(old), len(new)) <= _MAX_TERM_WORDS else None
