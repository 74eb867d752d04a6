"""A database that has no space."""

from sqlalchemy import text

from serve.state import State


def fill_database(state: State) -> None:
    """Makes SQLite refuse further pages, as on a full disk. Each connection has the limit; a thread reuses its own."""
    with state.reading() as connection:
        connection.execute(text("PRAGMA max_page_count = 1"))
