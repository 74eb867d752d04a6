"""The keys in the database of the service: they are created, listed, changed and revoked."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa

from dragoman.serve.host.state import State
from dragoman.serve.keys.key import Key, KeyLimits, digest_of, is_name, new_secret

TABLES = sa.MetaData()
_KEYS = sa.Table(
    "keys",
    TABLES,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("name", sa.String(64), nullable=False, unique=True),
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
    sa.Column("limits", sa.JSON, nullable=False),
    sa.Column("created_seconds", sa.BigInteger, nullable=False),
    sa.Column("revoked_seconds", sa.BigInteger),
    # The revision of the last change; the largest one is that of the table.
    sa.Column("revision", sa.Integer, nullable=False, index=True),
)
_REVISION = sa.select(sa.func.coalesce(sa.func.max(_KEYS.c.revision), 0))


class KeyExistsError(Exception):
    """Another key has the name, possibly a revoked one."""


class NoSuchKeyError(Exception):
    """No key has the name."""


class KeyStore:
    """The keys in the database. Threads may share an instance."""

    def __init__(self, state: State) -> None:
        """Opens the store, and creates its table if it is missing."""
        self._state = state
        state.create(TABLES)

    def create(self, name: str, limits: KeyLimits) -> tuple[Key, str]:
        """Creates a key and returns it with its text, which is kept nowhere.

        Raises KeyExistsError if the name is taken, ValueError if the name is invalid.
        """
        if not is_name(name):
            raise ValueError(f"name: {name[:64]!r}, expected 1 to 64 letters, digits, dots, hyphens and underscores")
        key_id, text = new_secret()
        key = Key(key_id, name, digest_of(text.encode()), limits, int(time.time()))
        with self._state.writing() as connection:
            if connection.execute(sa.select(_KEYS.c.id).where(_KEYS.c.name == name)).first() is not None:
                raise KeyExistsError(f"name: {name!r} is the name of another key")
            values = {"id": key_id, "name": name, "digest": key.digest, "created_seconds": key.created_seconds}
            revision = connection.execute(_REVISION).scalar_one() + 1
            row = {**values, "limits": limits.model_dump(mode="json"), "revision": revision}
            connection.execute(sa.insert(_KEYS).values(row))
        return key, text

    def revision(self) -> int:
        """Returns a number that grows with every change."""
        with self._state.reading() as connection:
            return int(connection.execute(_REVISION).scalar_one())

    def list(self) -> Sequence[Key]:
        """Returns all keys in the order of their names, revoked ones included."""
        with self._state.reading() as connection:
            return [_read(row) for row in connection.execute(sa.select(_KEYS).order_by(_KEYS.c.name))]

    def get(self, name: str) -> Key:
        """Returns the key of a name; raises NoSuchKeyError if there is none."""
        with self._state.reading() as connection:
            return _find(connection, name)

    def change(self, name: str, changes: Mapping[str, Any]) -> Key:
        """Changes some limits of a key, and returns it; raises NoSuchKeyError, or ValidationError for a bad limit."""
        with self._state.writing() as connection:
            key = _find(connection, name)
            limits = KeyLimits.model_validate({**key.limits.model_dump(), **changes})
            _update(connection, key, limits=limits.model_dump(mode="json"))
        return replace(key, limits=limits)

    def revoke(self, name: str) -> Key:
        """Revokes a key for ever, and returns it; its name stays taken. Raises NoSuchKeyError if there is none."""
        with self._state.writing() as connection:
            key = _find(connection, name)
            if key.revoked_seconds is not None:
                return key
            now_seconds = int(time.time())
            _update(connection, key, revoked_seconds=now_seconds)
        return replace(key, revoked_seconds=now_seconds)


def _find(connection: sa.Connection, name: str) -> Key:
    row = connection.execute(sa.select(_KEYS).where(_KEYS.c.name == name)).first()
    if row is None:
        raise NoSuchKeyError(f"name: {name[:64]!r}, expected the name of a key")
    return _read(row)


def _update(connection: sa.Connection, key: Key, **values: Any) -> None:
    revision = connection.execute(_REVISION).scalar_one() + 1
    connection.execute(sa.update(_KEYS).where(_KEYS.c.id == key.id).values(**values, revision=revision))


def _read(row: sa.Row[Any]) -> Key:
    limits = KeyLimits.model_validate(row.limits)
    return Key(row.id, row.name, row.digest, limits, row.created_seconds, row.revoked_seconds)
