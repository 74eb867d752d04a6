"""The characters and requests of each key, counted for all processes together.

A process leases characters in portions and counts what it uses in memory. Its row in the database holds what it has
used and what it still holds; both count against the quota, so that processes never exceed it together. An orderly stop
returns what was not used. What a killed process held counts as used.

A row is written with absolute values: a write that is repeated after a lost connection counts once.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from dragoman.serve.host.state import State
from dragoman.serve.keys.key import Key, period_end, time_text

TABLES = sa.MetaData()
_USAGE = sa.Table(
    "key_usage",
    TABLES,
    sa.Column("key_id", sa.String(80), primary_key=True),
    sa.Column("period_start_seconds", sa.BigInteger, primary_key=True),
    # Empty: of processes that have ended.
    sa.Column("process", sa.String(32), primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("held", sa.BigInteger, nullable=False),
    sa.Column("touched_seconds", sa.Float, nullable=False),
)
_MINUTES = sa.Table(
    "key_minutes",
    TABLES,
    sa.Column("key_id", sa.String(80), primary_key=True),
    sa.Column("minute", sa.BigInteger, nullable=False),
    sa.Column("requests", sa.BigInteger, nullable=False),
)
# Requests at once that a process holds of those that its key may have.
_SLOTS = sa.Table(
    "key_slots",
    TABLES,
    sa.Column("key_id", sa.String(80), primary_key=True),
    sa.Column("process", sa.String(32), primary_key=True),
    sa.Column("held", sa.BigInteger, nullable=False),
    sa.Column("touched_seconds", sa.Float, nullable=False),
)
ENDED = ""
# A process with running requests writes its row far more often.
SLOTS_LOST_AFTER_SECONDS = 10.0
# A process that holds a portion writes its row far more often.
LOST_AFTER_SECONDS = 60.0
# Near the end of a quota, portions shrink: processes do not hold what others ask for.
_SHARE_OF_REST = 8


@dataclass(frozen=True, slots=True)
class Counted:
    """The row of one process: characters that a key has used in a period, and those that the process holds."""

    key_id: str
    period_start_seconds: int
    used: int
    held: int


class UsageStore:
    """Counts in the database. Threads may share an instance."""

    def __init__(self, state: State, process: str) -> None:
        """Opens the counts of a process with a unique name, and creates the tables if they are missing."""
        self._state = state
        self._process = process
        state.create(TABLES)

    def lease(self, counted: Counted, wanted: int, least: int, limit: int | None) -> int:
        """Writes a row and leases characters for it.

        Args:
            counted: without the characters to lease.
            wanted: characters to lease if the quota has enough of them.
            least: lease none rather than fewer.
            limit: of all processes; None: no limit.

        Returns:
            The leased characters; 0: too few are left.
        """
        with self._state.writing() as connection:
            granted = wanted if limit is None else self._grant(connection, counted, wanted, least, limit)
            held = counted.held + granted
            self._write(
                connection, Counted(counted.key_id, counted.period_start_seconds, counted.used, held), time.time()
            )
        return granted

    def lease_slot(self, key_id: str, held: int, limit: int) -> bool:
        """Returns whether this process may have one more request of a key at once, and writes that it holds it.

        Args:
            held: requests at once that this process holds already.
            limit: of all processes.
        """
        with self._state.writing() as connection:
            now_seconds = time.time()
            others = connection.execute(
                sa.select(sa.func.coalesce(sa.func.sum(_SLOTS.c.held), 0)).where(
                    _SLOTS.c.key_id == key_id,
                    _SLOTS.c.process != self._process,
                    _SLOTS.c.touched_seconds >= now_seconds - SLOTS_LOST_AFTER_SECONDS,
                )
            ).scalar_one()
            leased = held + int(others) < limit
            self._write_slots(connection, key_id, held + leased, now_seconds)
        return leased

    def write(self, rows: Sequence[Counted], slots: Mapping[str, int]) -> None:
        """Writes what this process has used and holds; `slots`: requests at once by key."""
        with self._state.writing() as connection:
            now_seconds = time.time()
            for row in rows:
                self._write(connection, row, now_seconds)
            for key_id, held in slots.items():
                self._write_slots(connection, key_id, held, now_seconds)

    def close(self, rows: Sequence[Counted]) -> None:
        """Adds what this process has used to that of ended processes; what it holds returns to the quotas."""
        with self._state.writing() as connection:
            now_seconds = time.time()
            connection.execute(sa.delete(_SLOTS).where(_SLOTS.c.process == self._process))
            for row in rows:
                own = _is(_USAGE, _keys(row, self._process))
                # The row of a repeated call is gone.
                if connection.execute(sa.delete(_USAGE).where(own)).rowcount and row.used:
                    more = {"used": _USAGE.c.used + row.used, "touched_seconds": now_seconds}
                    first = {"used": row.used, "held": 0, "touched_seconds": now_seconds}
                    _put(connection, _USAGE, _keys(row, ENDED), more, first)

    def used(self, key_id: str, period_start_seconds: int, own_used: int | None = None) -> int:
        """Returns the used characters of a period; `own_used` replaces what this process has written, if given."""
        with self._state.reading() as connection:
            lost = _USAGE.c.touched_seconds < time.time() - LOST_AFTER_SECONDS
            rows = connection.execute(
                sa.select(_USAGE.c.process, _USAGE.c.used, _USAGE.c.held, lost.label("lost")).where(
                    _USAGE.c.key_id == key_id, _USAGE.c.period_start_seconds == period_start_seconds
                )
            ).all()
        counted = [row for row in rows if own_used is None or row.process != self._process]
        return (own_used or 0) + sum(int(item.used + (item.held if item.lost else 0)) for item in counted)

    def count_requests(self, key_id: str, minute: int, wanted: int, limit: int) -> int:
        """Leases requests of a minute for this process, and returns their number; 0: none are left."""
        with self._state.writing() as connection:
            row = connection.execute(sa.select(_MINUTES).where(_MINUTES.c.key_id == key_id)).first()
            before = row.requests if row is not None and row.minute == minute else 0
            granted = max(0, min(wanted, limit - before))
            values = {"minute": minute, "requests": before + granted}
            if row is None:
                connection.execute(sa.insert(_MINUTES).values(key_id=key_id, **values))
            elif granted:
                connection.execute(sa.update(_MINUTES).where(_MINUTES.c.key_id == key_id).values(**values))
        return granted

    def _grant(self, connection: sa.Connection, counted: Counted, wanted: int, least: int, limit: int) -> int:
        others = connection.execute(
            sa.select(sa.func.coalesce(sa.func.sum(_USAGE.c.used + _USAGE.c.held), 0)).where(
                _USAGE.c.key_id == counted.key_id,
                _USAGE.c.period_start_seconds == counted.period_start_seconds,
                _USAGE.c.process != self._process,
            )
        ).scalar_one()
        left = limit - int(others) - counted.used - counted.held
        return 0 if left < least else max(least, min(wanted, left // _SHARE_OF_REST))

    def _write(self, connection: sa.Connection, row: Counted, now_seconds: float) -> None:
        values = {"used": row.used, "held": row.held, "touched_seconds": now_seconds}
        _put(connection, _USAGE, _keys(row, self._process), values, values)

    def _write_slots(self, connection: sa.Connection, key_id: str, held: int, now_seconds: float) -> None:
        values = {"held": held, "touched_seconds": now_seconds}
        _put(connection, _SLOTS, {"key_id": key_id, "process": self._process}, values, values)


def _keys(counted: Counted, process: str) -> dict[str, Any]:
    return {"key_id": counted.key_id, "period_start_seconds": counted.period_start_seconds, "process": process}


def _is(table: sa.Table, keys: Mapping[str, Any]) -> sa.ColumnElement[bool]:
    return sa.and_(*(table.c[name] == value for name, value in keys.items()))


def _put(
    connection: sa.Connection,
    table: sa.Table,
    keys: Mapping[str, Any],
    changes: Mapping[str, Any],
    first: Mapping[str, Any],
) -> None:
    """Changes the row with these keys, or inserts one with the `first` values."""
    if not connection.execute(sa.update(table).where(_is(table, keys)).values(changes)).rowcount:
        connection.execute(sa.insert(table).values({**keys, **first}))


def describe_usage(key: Key, used: int, start: int) -> dict[str, Any]:
    """Returns the used characters of the period that begins at a Unix time; 0: for ever."""
    return {
        "name": key.name,
        "characters": used,
        "limit": key.limits.characters,
        "period_start": time_text(start or None),
        "period_end": time_text(period_end(key.limits.period, start)),
    }
