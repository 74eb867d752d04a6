"""The database of what outlives a process, such as glossaries, jobs and usage.

It is SQLite in the state directory; the processes of a machine may share it. Each package creates its own tables.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, MetaData, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DatabaseError

DATABASE = "dragoman.db"
# How long a transaction waits for those of other processes. A write takes milliseconds.
LOCK_TIMEOUT_SECONDS = 20
_READS = "dragoman_reads"


class StateError(Exception):
    """A state directory that cannot be used; the message has its path and the reason."""


class State:
    """Transactions on the database of a state directory.

    Threads may share an instance. A forked process must open its own.
    """

    def __init__(self, directory: Path) -> None:
        """Opens the database, and creates it and the directory if they are missing.

        Raises:
            StateError: if the directory or the database cannot be used.
        """
        self.directory = directory
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            (directory / DATABASE).touch(mode=0o600)
            self._engine = _open(directory / DATABASE)
            with self.writing():
                pass
        except (OSError, DatabaseError) as error:
            reason = error.orig if isinstance(error, DatabaseError) else error.strerror
            raise StateError(f"state directory {directory}: {reason}") from error

    def create(self, tables: MetaData) -> None:
        """Creates the tables that are missing."""
        with self.writing() as connection:
            tables.create_all(connection)

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Sees one state of all tables, and waits for no writer."""
        with self._engine.connect().execution_options(**{_READS: True}) as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Commits at the end, or nothing if an exception ends it; one transaction of all processes writes at a time."""
        with self._engine.begin() as connection:
            yield connection

    def close(self) -> None:
        """Closes the connections."""
        self._engine.dispose()


def _open(path: Path) -> Engine:
    engine = create_engine(f"sqlite:///{path}", connect_args={"timeout": LOCK_TIMEOUT_SECONDS})

    @event.listens_for(engine, "connect")
    def _set_up(connection: DBAPIConnection, _: object) -> None:
        connection.isolation_level = None  # _begin begins transactions, not the driver
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA foreign_keys = ON")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reads = connection.get_execution_options().get(_READS)
        # A transaction that reads first and writes later would fail if another wrote in between.
        connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")

    return engine
