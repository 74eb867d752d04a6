"""The database of what outlives a process, such as glossaries, jobs, keys and usage.

It is SQLite in the state directory, which the processes of a machine may share, or PostgreSQL, which many machines may
share. Each package creates its own tables, with constructs that both databases have.
"""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from sqlalchemy import Connection, Dialect, Engine, MetaData, String, TypeDecorator, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.schema import CreateColumn

from dragoman.serve.errors import StorageFullError

DATABASE = "dragoman.db"
POSTGRESQL = "postgresql"
DRIVER = "postgresql+pg8000"
# A transaction waits this long for those of other processes. A write takes milliseconds.
LOCK_TIMEOUT_SECONDS = 20
CONNECT_TIMEOUT_SECONDS = 10
# The number of the advisory lock that the writers of all servers take: "dragoman" in ASCII, signed, 64 bits.
_WRITERS = int.from_bytes(b"dragoman", "big")
_READS = "dragoman_reads"
_FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
# SQLite cannot extend the database, or one of the files next to it.
_FULL_SQLITE = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_SHMSIZE})
# The code disk_full of PostgreSQL.
_FULL_POSTGRESQL = "53100"


class StateError(Exception):
    """A state directory or a database that cannot be used; the message has its address and the reason."""


class Identifier(TypeDecorator[str]):
    """The type of a column whose values clients name, of a bounded number of characters.

    No row has a value that is longer, or that not every database takes: with lone surrogates or controls.
    """

    impl = String
    cache_ok = True

    def __init__(self, max_characters: int) -> None:
        super().__init__(max_characters)
        self._max_characters = max_characters

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Returns what a query compares with: the empty text for a value that no row has."""
        named = value is None or (len(value) <= self._max_characters and value.isprintable())
        return value if named else ""


class State:
    """Transactions on the database of the service.

    Threads may share an instance, and end transactions after it is closed. A forked process must open its own.

    Attributes:
        directory: for files next to the database.
    """

    def __init__(self, directory: Path, url: str | None = None, *, cache_bytes: int = 2 << 20) -> None:
        """Opens the database, and creates it and the directory if they are missing.

        Args:
            directory: holds the database, unless `url` is given, and files.
            url: of a PostgreSQL database, as in `postgresql://user:password@host/database`; None: SQLite.
            cache_bytes: of the pages that each connection to SQLite keeps.

        Raises StateError if the directory or the database cannot be used.
        """
        self.directory = directory
        self._lock = Lock()
        self._running = 0
        self._closed = False
        location = f"state directory {directory}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if url is None:
                (directory / DATABASE).touch(mode=0o600)
                self._engine = _open_sqlite(directory / DATABASE, cache_bytes)
            else:
                parsed = _parse(url)
                location = f"database {parsed.render_as_string(hide_password=True)}"
                self._engine = _open_postgresql(parsed.set(drivername=DRIVER))
            self._check()
        except (OSError, SQLAlchemyError, StorageFullError) as error:
            raise StateError(f"{location}: {_reason(error)}") from error

    def create(self, tables: MetaData) -> None:
        """Creates the tables that are missing, and the columns and indexes that an earlier version did not have."""
        with self.writing() as connection:
            tables.create_all(connection)
            _add_missing(connection, tables)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Sees one state of all tables, and waits for no writer."""
        with self._counted(), self._engine.connect().execution_options(**{_READS: True}) as opened, opened.begin():
            yield opened

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Commits at the end unless an exception ends it, one process at a time; raises StorageFullError."""
        with storing(), self._counted(), self._engine.begin() as connection:
            yield connection

    def close(self) -> None:
        """Closes the connections, those of running and of later transactions when these have ended."""
        with self._lock:
            self._closed = True
            self._dispose_unused()

    def _check(self) -> None:
        try:
            with self.writing():
                pass
        except (SQLAlchemyError, StorageFullError):
            self.close()
            raise

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                self._dispose_unused()

    def _dispose_unused(self) -> None:
        # SQLAlchemy closes no connection that returns after `dispose`.
        if self._closed and not self._running:
            self._engine.dispose()


@contextmanager
def storing() -> Iterator[None]:
    """Raises StorageFullError in place of the errors of a full disk or database."""
    try:
        yield
    except OSError as error:
        if error.errno in _FULL_DISK:
            raise StorageFullError from error
        raise
    except DBAPIError as error:
        if _is_full(error.orig):
            raise StorageFullError from error
        raise


def _is_full(error: BaseException | None) -> bool:
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", None) in _FULL_SQLITE
    fields = error.args[0] if error is not None and error.args else None
    return isinstance(fields, dict) and fields.get("C") == _FULL_POSTGRESQL


def _add_missing(connection: Connection, tables: MetaData) -> None:
    existing = inspect(connection)
    for table in tables.sorted_tables:
        names = {column["name"] for column in existing.get_columns(table.name)}
        for column in table.columns:
            if column.name not in names:
                written = CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(text(f"ALTER TABLE {table.name} ADD COLUMN {written}"))
        for index in table.indexes:
            index.create(connection, checkfirst=True)


def _open_sqlite(path: Path, cache_bytes: int) -> Engine:
    if sqlite3.sqlite_version_info < (3, 35):  # the first with RETURNING
        raise StateError(f"state directory {path.parent}: expected SQLite 3.35 or newer, got {sqlite3.sqlite_version}")
    # The connection that was used last has the pages of recent queries in its cache.
    options = {"timeout": LOCK_TIMEOUT_SECONDS}
    engine = create_engine(f"sqlite:///{path}", connect_args=options, pool_use_lifo=True)

    @event.listens_for(engine, "connect")
    def _set_up(connection: DBAPIConnection, _: object) -> None:
        connection.isolation_level = None  # _begin begins transactions, not the driver
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute(f"PRAGMA cache_size = -{cache_bytes >> 10}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_READS):
            connection.connection.cursor().execute("BEGIN")  # SQLAlchemy takes three times as long
            return
        # A transaction that reads first and writes later would fail if another wrote in between.
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def _open_postgresql(url: URL) -> Engine:
    # A connection that a restart of the database has closed is replaced before its next use.
    engine = create_engine(url, pool_pre_ping=True, connect_args={"timeout": CONNECT_TIMEOUT_SECONDS})

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        if connection.get_execution_options().get(_READS):
            connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
        else:
            # Each statement after the lock sees what earlier writers have committed.
            connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_SECONDS}s'"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_WRITERS})"))

    return engine


def _parse(url: str) -> URL:
    """Returns the parts of a PostgreSQL address; raises StateError, without the address, which may have a password."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        parsed = None
    if parsed is None or parsed.get_backend_name() != POSTGRESQL:
        raise StateError("state-url: expected an address as in postgresql://USER:PASSWORD@HOST/DATABASE")
    return parsed.set(drivername=POSTGRESQL)


def _reason(error: OSError | SQLAlchemyError | StorageFullError) -> str:
    if isinstance(error, OSError):
        return str(error.strerror)
    if isinstance(error, StorageFullError):
        return str(error)
    cause = getattr(error, "orig", None) or error
    # pg8000 raises errors of the server with a mapping of fields; M is the message.
    details = cause.args[0] if cause.args else ""
    return str(details.get("M", details) if isinstance(details, dict) else cause)


def largest_share(limit: int, others: int, *, first: bool) -> int:
    """Returns how much of a store a client may fill next to `others`; `first`: it has at most one item."""
    free = max(0, limit - others)
    return free if first else free // 2
