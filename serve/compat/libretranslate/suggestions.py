"""Better translations that clients suggest, in the database of the service. The operator reads and deletes them."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import Column, Integer, MetaData, String, Table, Text, delete, func, insert, select

from dragoman.serve.host.state import State, largest_share

# Suggestions of 10,000 characters each would take 200 MB.
MAX_SUGGESTIONS = 10_000

TABLES = MetaData()
_SUGGESTIONS = Table(
    "suggestions",
    TABLES,
    Column("number", Integer, primary_key=True),
    Column("q", Text, nullable=False),
    Column("s", Text, nullable=False),
    Column("source", String(35), nullable=False),
    Column("target", String(35), nullable=False),
    # What counts as one client: an API key, or an address.
    Column("owner", Text, nullable=False, server_default=""),
)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A better translation `s` of `q`, with codes of their languages; the first one may be `auto`."""

    q: str
    s: str
    source: str
    target: str


class SuggestionStore:
    """Stores suggestions. Threads may share an instance."""

    def __init__(self, state: State) -> None:
        """Opens the store, and creates its table if it is missing."""
        self._state = state
        state.create(TABLES)

    def add(self, suggestion: Suggestion, owner: str = "") -> bool:
        """Stores a suggestion; returns whether there was room for its owner, which counts as one client."""
        counts = select(func.count(), func.count().filter(_SUGGESTIONS.c.owner == owner)).select_from(_SUGGESTIONS)
        with self._state.writing() as connection:
            stored, owned = connection.execute(counts).one()
            if owned >= largest_share(MAX_SUGGESTIONS, stored - owned, first=owned == 0):
                return False
            # PostgreSQL has no null characters.
            values = {name: text.replace("\0", "") for name, text in asdict(suggestion).items()}
            connection.execute(insert(_SUGGESTIONS).values({**values, "owner": owner}))
        return True

    def list(self) -> Sequence[tuple[int, Suggestion]]:
        """Returns all suggestions with their numbers, the oldest first."""
        with self._state.reading() as connection:
            rows = connection.execute(select(_SUGGESTIONS).order_by(_SUGGESTIONS.c.number))
            return [(row.number, Suggestion(row.q, row.s, row.source, row.target)) for row in rows]

    def delete(self, last: int) -> None:
        """Deletes the suggestions up to a number."""
        with self._state.writing() as connection:
            connection.execute(delete(_SUGGESTIONS).where(_SUGGESTIONS.c.number <= last))
