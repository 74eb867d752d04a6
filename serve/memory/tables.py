"""The tables of memories: their names, their entries, and the index of similar texts."""

from collections import namedtuple
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from dragoman.serve.host.state import POSTGRESQL, Identifier
from dragoman.serve.memory.entry import MAX_LANGUAGE_CHARACTERS, Entry, Pair

MAX_NAME_CHARACTERS = 64
# The account of what is shared.
SHARED = ""
VERSION = "version"
TEXTS = (*Entry._fields, "translation")

TABLES = sa.MetaData()
MEMORIES = sa.Table(
    "memories",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("account", sa.Text, nullable=False),
    sa.Column("name", Identifier(MAX_NAME_CHARACTERS), nullable=False),
    *(sa.Column(name, sa.BigInteger, nullable=False) for name in (VERSION, "entry_count", "entry_bytes")),
    sa.Column("changed_seconds", sa.Double, nullable=False),
    sa.UniqueConstraint("account", "name"),
    sqlite_autoincrement=True,
)
_WAITS = sa.text("version = 0")
ENTRIES = sa.Table(
    "memory_entries",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("memory_id", sa.Integer, sa.ForeignKey("memories.id", ondelete="CASCADE"), nullable=False),
    # The hash of the pair of languages and the pattern of the source.
    sa.Column("digest", sa.BigInteger, nullable=False),
    *(sa.Column(name, Identifier(MAX_LANGUAGE_CHARACTERS), nullable=False) for name in Pair._fields),
    # What the model wrote in place of the target may be unknown, and then is empty.
    *(sa.Column(name, sa.Text, nullable=False) for name in (*TEXTS, "origin", "author")),
    sa.Column("created_seconds", sa.Double, nullable=False),
    # The version of the memory from which on the entry counts; 0: it is a correction that waits for approval.
    sa.Column(VERSION, sa.BigInteger, nullable=False),
    sa.Index("memory_entries_by_digest", "memory_id", "digest"),
    # Without it, SQLite sorts all entries of a memory for each part of an export.
    sa.Index("memory_entries_by_memory", "memory_id", "id"),
    sa.Index("memory_entries_that_wait", "author", sqlite_where=_WAITS, postgresql_where=_WAITS),
    sqlite_autoincrement=True,
)
COLUMNS = ENTRIES.c
WAITING = sa.literal_column("memory_entries.version", sa.BigInteger) == sa.literal_column("0")
SIZE = sum((sa.func.length(COLUMNS[name]) for name in TEXTS), sa.literal(0))
# The columns that people see.
SHOWN = [COLUMNS[name] for name in ("id", *Pair._fields, *Entry._fields, "origin", "author", "created_seconds")]
POSTINGS = sa.Table(
    "memory_postings",
    TABLES,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("memory_id", sa.Integer, sa.ForeignKey("memories.id", ondelete="CASCADE"), nullable=False),
    sa.Column("bucket", sa.Integer, nullable=False),
    # Numbers of 64 bits, see `dragoman.serve.memory.similar`.
    sa.Column("postings", sa.LargeBinary, nullable=False),
    sa.Index("memory_postings_by_bucket", "memory_id", "bucket"),
)


def any_of(name: str, kind: type[sa.types.TypeEngine[Any]] = sa.Text) -> sa.Select[Any]:
    """Returns a query for the keys of a parameter, a dictionary: for any number of them, the database has one query."""
    key = sa.func.json_each(sa.bindparam(name, type_=sa.JSON)).table_valued("key").c.key
    return sa.select(sa.cast(key, kind))


class Query:
    """A query of each request. SQLAlchemy, which makes objects for each call, takes a multiple of SQLite's time."""

    def __init__(self, query: sa.Select[Any]) -> None:
        self._query, self._compiled = query, query.compile(dialect=(dialect := sqlite.dialect()))
        kinds = {name: bind.type.dialect_impl(dialect) for name, bind in self._compiled.binds.items()}
        self._processors = [(name, kinds[name].bind_processor(dialect)) for name in self._compiled.positiontup or ()]
        self._row: Any = namedtuple("Row", query.selected_columns.keys())  # type: ignore[misc]  # noqa: PYI024

    def rows(self, connection: sa.Connection, parameters: Mapping[str, object]) -> Sequence[Any]:
        """Returns the rows; `parameters` are those that the query has no values for."""
        if connection.dialect.name == POSTGRESQL:
            return connection.execute(self._query, parameters).all()
        driver: Any = connection.connection.driver_connection
        given = self._compiled.params | parameters
        values = [process(given[name]) if process else given[name] for name, process in self._processors]
        return list(map(self._row._make, driver.execute(str(self._compiled), values)))


# The memories that the accounts of a client may use, and those of them that it chose.
USABLE = MEMORIES.c.account.in_(any_of("accounts"))
CHOSEN = USABLE & MEMORIES.c.id.in_(any_of("memories", sa.Integer))


def insert_rows(connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Inserts rows, with the values of all columns but the id in their order; the ids are in the order of the rows."""
    names = [column.name for column in table.columns if not column.primary_key]
    if connection.dialect.name == POSTGRESQL:
        # SQLAlchemy sends 1,000 rows at once if it returns ids; else each row takes about 2 ms.
        values = [dict(zip(names, row, strict=True)) for row in rows]
        connection.execute(sa.insert(table).returning(table.c.id, sort_by_parameter_order=True), values).all()
        return
    # SQLAlchemy, which processes each value, takes twice as long.
    statement = sa.insert(table).compile(dialect=connection.dialect, column_keys=names)
    connection.exec_driver_sql(str(statement), rows)
