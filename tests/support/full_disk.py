"""A database that has no space."""

from sqlalchemy import event

from dragoman.serve.host.state import State


def fill_database(state: State) -> None:
    """Makes SQLite refuse further pages, as on a full disk."""
    event.listen(state._engine, "checkout", lambda connection, *_: connection.execute("PRAGMA max_page_count = 1"))
