"""Stored glossaries: each has a dictionary per pair of languages.

A glossary belongs to the API key that stored it. Other keys neither see nor use it. What is stored without a key, all
may use, and only requests without a key change it.

They are in the database of the state directory: all processes of the service see a change at once, and it outlives
them. The index of a dictionary is made at its first use. All methods may wait for the database.
"""

import json
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import sqlalchemy as sa

from dragoman.serve.errors import ForbiddenError, GlossaryNotFoundError, GlossaryStoreFullError, InvalidRequestError
from dragoman.serve.glossaries.index_cache import IndexCache
from dragoman.serve.host.state import Identifier, State, largest_share
from dragoman.serve.protect.terms.entry import Entry, check_entries
from dragoman.serve.protect.terms.matching import TermIndex

MAX_GLOSSARIES = 1000
MAX_DICTIONARIES = 100
MAX_NAME_CHARACTERS = 1024
MAX_LANGUAGE_CHARACTERS = 35
# The limits of all clients together; see `largest_share`.
MAX_STORED_GLOSSARIES = 10_000
MAX_STORED_BYTES = 1 << 30
# The account of a glossary that was stored without a key.
SHARED = ""

TABLES = sa.MetaData()
_GLOSSARIES = sa.Table(
    "glossaries",
    TABLES,
    sa.Column("id", Identifier(36), primary_key=True),
    sa.Column("account", sa.Text, nullable=False),
    # What counts as one client: an API key, or an address.
    sa.Column("owner", sa.Text, nullable=False, server_default=""),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("created_seconds", sa.Double, nullable=False),
    sa.Column("changed_seconds", sa.Double, nullable=False),
)
_DICTIONARIES = sa.Table(
    "glossary_dictionaries",
    TABLES,
    sa.Column("glossary_id", Identifier(36), sa.ForeignKey("glossaries.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("source_language", Identifier(MAX_LANGUAGE_CHARACTERS), primary_key=True),
    sa.Column("target_language", Identifier(MAX_LANGUAGE_CHARACTERS), primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("revision", sa.String(36), nullable=False),
    sa.Column("entry_count", sa.Integer, nullable=False),
    sa.Column("entries", sa.Text, nullable=False),
    sa.Column("entry_bytes", sa.BigInteger, nullable=False, server_default="0"),
)


@dataclass(frozen=True, slots=True)
class _Directed:
    """A pair of languages, which are ISO 639-1 codes."""

    source_language: str
    target_language: str

    @property
    def pair(self) -> tuple[str, str]:
        """The languages."""
        return self.source_language, self.target_language


@dataclass(frozen=True, slots=True)
class Dictionary(_Directed):
    """The entries of a glossary for one pair of languages."""

    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class DictionarySummary(_Directed):
    """A dictionary without its entries."""

    entry_count: int


@dataclass(frozen=True, slots=True)
class Glossary:
    """A stored glossary without its entries.

    Attributes:
        id: a UUID.
        dictionaries: at least one, in the order of their creation.
        created_seconds, changed_seconds: Unix times.
    """

    id: str
    name: str
    dictionaries: tuple[DictionarySummary, ...]
    created_seconds: float
    changed_seconds: float


class GlossaryStore:
    """The glossaries of all API keys. Thread-safe."""

    def __init__(self, state: State) -> None:
        """Creates the tables if they are missing."""
        state.create(TABLES)
        self._state = state
        self._indexes = IndexCache()

    def of(self, account: str, owner: str = "") -> "Glossaries":
        """Returns what a client may use.

        Args:
            account: id of its API key; empty: it has none.
            owner: what counts as one client, and has a share of the store and of the memory; empty: the account.
        """
        return Glossaries(self._state, self._indexes, account, owner or account)


class Glossaries:
    """Creates, returns, changes and deletes the glossaries of one API key. Thread-safe."""

    def __init__(self, state: State, indexes: IndexCache, account: str, owner: str) -> None:
        self._state = state
        self._indexes = indexes
        self._account = account
        self._owner = owner
        self._usable = _GLOSSARIES.c.account.in_((account, SHARED))

    def create(self, name: str, dictionaries: Sequence[Dictionary]) -> Glossary:
        """Stores a new glossary and returns it.

        Raises InvalidRequestError, EntryError, GlossaryStoreFullError without room, or StorageFullError without space.
        """
        _check(name, dictionaries)
        glossary_id, now_seconds = str(uuid.uuid4()), time.time()
        with self._state.writing() as connection:
            values = {"name": name, "created_seconds": now_seconds, "changed_seconds": now_seconds}
            values |= {"id": glossary_id, "account": self._account, "owner": self._owner}
            connection.execute(sa.insert(_GLOSSARIES).values(values))
            _put(connection, glossary_id, *dictionaries)
            return self._checked(connection, glossary_id)

    def list_all(self) -> list[Glossary]:
        """Returns all glossaries that the key may use, the oldest first."""
        with self._state.reading() as connection:
            return _glossaries(connection, self._usable)

    def get(self, glossary_id: str) -> Glossary:
        """Returns a glossary; raises GlossaryNotFoundError if there is none with this id."""
        with self._state.reading() as connection:
            return self._glossary(connection, glossary_id)

    def entries(self, glossary_id: str, source_language: str, target_language: str) -> tuple[Entry, ...]:
        """Returns the entries of a dictionary; raises GlossaryNotFoundError if there is no such one."""
        with self._state.reading() as connection:
            return self._entries(connection, glossary_id, source_language, target_language)

    def index(self, glossary_id: str, source_language: str, target_language: str) -> TermIndex:
        """Returns the index of a dictionary; raises GlossaryNotFoundError if there is no such one."""
        pair = glossary_id, source_language, target_language
        with self._state.reading() as connection:
            revision = self._value(connection, _DICTIONARIES.c.revision, *pair)
        return self._indexes.find(revision, self._owner, lambda: TermIndex(self.entries(*pair)))

    def replace(self, glossary_id: str, name: str, dictionaries: Sequence[Dictionary]) -> Glossary:
        """Replaces name and dictionaries; raises as `create`, or GlossaryNotFoundError or ForbiddenError."""
        _check(name, dictionaries)
        with self._state.writing() as connection:
            self._touch(connection, glossary_id, name)
            connection.execute(sa.delete(_DICTIONARIES).where(_DICTIONARIES.c.glossary_id == glossary_id))
            _put(connection, glossary_id, *dictionaries)
            return self._checked(connection, glossary_id)

    def change(self, glossary_id: str, name: str | None = None, dictionaries: Iterable[Dictionary] = ()) -> Glossary:
        """Renames a glossary, and adds entries or replaces those of the same terms; raises as `replace`."""
        with self._state.writing() as connection:
            self._touch(connection, glossary_id, name)
            for dictionary in dictionaries:
                merged = dict[str, Entry]()
                with suppress(GlossaryNotFoundError):
                    merged = {entry.source: entry for entry in self._entries(connection, glossary_id, *dictionary.pair)}
                merged.update({entry.source: entry for entry in check_entries(dictionary.entries)})
                _put(connection, glossary_id, replace(dictionary, entries=tuple(merged.values())))
            return self._checked(connection, glossary_id)

    def put_dictionary(self, glossary_id: str, dictionary: Dictionary) -> Glossary:
        """Replaces or adds one dictionary of a glossary; raises as `replace`."""
        with self._state.writing() as connection:
            self._touch(connection, glossary_id)
            _put(connection, glossary_id, dictionary)
            return self._checked(connection, glossary_id)

    def delete_dictionary(self, glossary_id: str, source_language: str, target_language: str) -> None:
        """Deletes a dictionary, but not its glossary; raises GlossaryNotFoundError or ForbiddenError."""
        pair = glossary_id, source_language, target_language
        with self._state.writing() as connection:
            self._touch(connection, glossary_id)
            if not connection.execute(sa.delete(_DICTIONARIES).where(*_is(*pair))).rowcount:
                raise _no_dictionary(*pair)

    def delete(self, glossary_id: str) -> None:
        """Deletes a glossary; raises GlossaryNotFoundError, ForbiddenError as `replace`."""
        with self._state.writing() as connection:
            self._touch(connection, glossary_id)
            connection.execute(sa.delete(_DICTIONARIES).where(_DICTIONARIES.c.glossary_id == glossary_id))
            connection.execute(sa.delete(_GLOSSARIES).where(_GLOSSARIES.c.id == glossary_id))

    def _glossary(self, connection: sa.Connection, glossary_id: str) -> Glossary:
        found = _glossaries(connection, self._usable & (_GLOSSARIES.c.id == glossary_id))
        if not found:
            raise GlossaryNotFoundError(glossary_id)
        return found[0]

    def _value(self, connection: sa.Connection, column: sa.Column[str], *pair: str) -> str:
        """Returns a column of a dictionary, given its glossary and languages; raises GlossaryNotFoundError."""
        found = sa.select(column).select_from(_DICTIONARIES.join(_GLOSSARIES)).where(*_is(*pair), self._usable)
        value = connection.execute(found).scalar()
        if value is None:
            self._glossary(connection, pair[0])
            raise _no_dictionary(*pair)
        return value

    def _entries(self, connection: sa.Connection, *pair: str) -> tuple[Entry, ...]:
        text = self._value(connection, _DICTIONARIES.c.entries, *pair)
        return tuple(Entry(source, tuple(targets), match_case) for source, targets, match_case in json.loads(text))

    def _touch(self, connection: sa.Connection, glossary_id: str, name: str | None = None) -> None:
        """Notes a change; raises GlossaryNotFoundError, or ForbiddenError if the key may only use it."""
        values: dict[str, object] = {"changed_seconds": time.time()}
        if name is not None:
            _check_name(name)
            values["name"] = name
        owned = (_GLOSSARIES.c.id == glossary_id) & (_GLOSSARIES.c.account == self._account)
        if not connection.execute(sa.update(_GLOSSARIES).where(owned).values(values)).rowcount:
            self._glossary(connection, glossary_id)
            raise ForbiddenError(f"glossary {glossary_id}: stored without an API key, so that no key may change it")

    def _checked(self, connection: sa.Connection, glossary_id: str) -> Glossary:
        """Returns a changed glossary; an error undoes the change."""
        glossary = self._glossary(connection, glossary_id)
        _check_pairs([summary.pair for summary in glossary.dictionaries])
        _check_share(connection, glossary_id)
        return glossary


def _check_share(connection: sa.Connection, glossary_id: str) -> None:
    """Raises GlossaryStoreFullError if the owner of a glossary has more than its share of the store."""
    own = _GLOSSARIES.c.owner == sa.select(_GLOSSARIES.c.owner).where(_GLOSSARIES.c.id == glossary_id).scalar_subquery()
    stored_bytes = sa.func.sum(_DICTIONARIES.c.entry_bytes)
    counts = sa.select(sa.func.count(), sa.func.count().filter(own)).select_from(_GLOSSARIES)
    sizes = sa.select(stored_bytes, stored_bytes.filter(own)).select_from(_DICTIONARIES.join(_GLOSSARIES))
    count, own_count = connection.execute(counts).one()
    entry_bytes, own_bytes = (int(size or 0) for size in connection.execute(sizes).one())
    first = own_count <= 1
    most = min(MAX_GLOSSARIES, largest_share(MAX_STORED_GLOSSARIES, count - own_count, first=first))
    max_bytes = largest_share(MAX_STORED_BYTES, entry_bytes - own_bytes, first=first)
    for what, owned, limit in (("glossaries", own_count, most), ("bytes of glossaries", own_bytes, max_bytes)):
        if owned > limit:
            raise GlossaryStoreFullError(f"{owned} {what} of this client, expected at most {limit}: delete some")


def _check(name: str, dictionaries: Sequence[Dictionary]) -> None:
    _check_name(name)
    if not dictionaries:
        raise InvalidRequestError("dictionaries", "expected at least one")
    _check_pairs([dictionary.pair for dictionary in dictionaries])


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > MAX_NAME_CHARACTERS or not name.isprintable():
        raise InvalidRequestError("name", f"expected 1 to {MAX_NAME_CHARACTERS} printable characters")


def _check_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    check_dictionary_count(len(pairs))
    if len(set(pairs)) < len(pairs):
        raise InvalidRequestError("dictionaries", "expected one dictionary per pair of languages")
    for source, target in pairs:
        if not (_is_language(source) and _is_language(target)):
            raise InvalidRequestError("dictionaries", "expected ISO 639-1 codes of both languages")
        if source == target:
            raise InvalidRequestError("dictionaries", "expected two different languages")


def _is_language(code: str) -> bool:
    return code.isalpha() and code.islower() and len(code) <= MAX_LANGUAGE_CHARACTERS


def _is(glossary_id: str, source_language: str, target_language: str) -> tuple[sa.ColumnElement[bool], ...]:
    columns = _DICTIONARIES.c
    return (
        columns.glossary_id == glossary_id,
        columns.source_language == source_language,
        columns.target_language == target_language,
    )


def _glossaries(connection: sa.Connection, wanted: sa.ColumnElement[bool]) -> list[Glossary]:
    """Returns the glossaries that meet a condition, the oldest first."""
    glossaries = sa.select(_GLOSSARIES).where(wanted).order_by(_GLOSSARIES.c.created_seconds, _GLOSSARIES.c.id)
    columns = _DICTIONARIES.c
    parts = (
        sa.select(columns.glossary_id, columns.source_language, columns.target_language, columns.entry_count)
        .select_from(_DICTIONARIES.join(_GLOSSARIES))
        .where(wanted)
        .order_by(columns.position)
    )
    dictionaries: dict[str, list[DictionarySummary]] = {}
    for owner, *summary in connection.execute(parts):
        dictionaries.setdefault(owner, []).append(DictionarySummary(*summary))
    return [
        Glossary(row.id, row.name, tuple(dictionaries.get(row.id, ())), row.created_seconds, row.changed_seconds)
        for row in connection.execute(glossaries)
    ]


def _no_dictionary(glossary_id: str, source_language: str, target_language: str) -> GlossaryNotFoundError:
    return GlossaryNotFoundError(glossary_id, f"has no dictionary from {source_language} into {target_language}")


def _put(connection: sa.Connection, glossary_id: str, *dictionaries: Dictionary) -> None:
    """Adds dictionaries to a glossary, or replaces those of the same languages."""
    for dictionary in dictionaries:
        source, target = dictionary.pair
        content = _content(dictionary.entries)
        if connection.execute(
            sa.update(_DICTIONARIES).where(*_is(glossary_id, source, target)).values(content)
        ).rowcount:
            continue
        last = sa.select(sa.func.max(_DICTIONARIES.c.position)).where(_DICTIONARIES.c.glossary_id == glossary_id)
        position = connection.execute(last).scalar()
        key = {"glossary_id": glossary_id, "source_language": source, "target_language": target}
        values = {**key, **content, "position": 0 if position is None else position + 1}
        connection.execute(sa.insert(_DICTIONARIES).values(values))


def _content(entries: Iterable[Entry]) -> dict[str, object]:
    checked = check_entries(entries)
    rows = [(entry.source, entry.targets, entry.match_case) for entry in checked]
    text = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    size_bytes = len(text.encode())
    return {"revision": str(uuid.uuid4()), "entry_count": len(checked), "entries": text, "entry_bytes": size_bytes}


def check_dictionary_count(count: int) -> None:
    """Checks the number of dictionaries before files are read; raises InvalidRequestError if it is too large."""
    if count > MAX_DICTIONARIES:
        raise InvalidRequestError("dictionaries", f"{count} dictionaries, expected at most {MAX_DICTIONARIES}")
