"""The keys that the service accepts: given ones, those of a file, and those of the database.

Texts of keys are not kept, only their digests. Comparisons take constant time.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from dragoman.model.errors import first_problem
from dragoman.serve.host.files import FileError, ReloadedValue, read_file
from dragoman.serve.keys.account import Account, ask
from dragoman.serve.keys.accounts import Accounts
from dragoman.serve.keys.key import Key, KeyLimits, digest_of, id_of, is_name
from dragoman.serve.keys.store import KeyStore

FILE = "api-keys-file"
# A header can carry only visible ASCII characters; white space separates scheme and key.
_KEY = re.compile(rb"[!-~]+")
# Counts of keys outside the database; no id of `new_secret` has a colon.
_FILE_ID = "file:"


class KeyRing:
    """Finds the account of a key."""

    def __init__(self, accounts: Accounts, keys: Iterable[str] = (), store: KeyStore | None = None) -> None:
        """Creates the ring of keys without limits, and of the keys in a store."""
        self._accounts = accounts
        self._given = tuple(_unnamed(key.encode()) for key in keys)
        self._file: ReloadedValue[tuple[Key, ...]] | None = None
        self._store = store
        self._revision = -1
        self._stored: Mapping[str, Key] = {}
        if store is not None:
            self._revision, self._stored = _load_stored(store)

    @classmethod
    def open(cls, accounts: Accounts, path: Path, store: KeyStore | None = None) -> Self:
        """Reads and reloads a file with a key, name and limits per line; raises FileError if it is invalid."""
        ring = cls(accounts, (), store)
        ring._file = ReloadedValue("keys", [path], lambda: read_keys(path, counting=accounts.counting))
        return ring

    def refresh(self) -> None:
        """Reloads the file if it changed."""
        if self._file is not None:
            self._file.refresh()

    async def refresh_stored(self) -> None:
        """Reloads the keys of the database if one changed; raises NotReadyError if the database does not answer."""
        store = self._store
        if store is not None and await ask(store.revision) != self._revision:
            self._revision, self._stored = await ask(_load_stored, store)

    def find(self, text: str) -> Account | None:
        """Returns the account of a key; None: it is not accepted."""
        digest = digest_of(text.encode(errors="replace"))
        keys = self._given if self._file is None else self._file.value
        # Compares all keys, so that the time does not depend on the match.
        matching = [key for key in keys if key.matches(digest)]
        stored = self._stored.get(id_of(text) or "")
        if stored is not None and stored.matches(digest):
            matching.append(stored)
        return self._accounts.of(matching[0]) if matching else None

    def find_id(self, key_id: str) -> Account | None:
        """Returns the account of the key with an id; None: it is not accepted any more."""
        keys = self._given if self._file is None else self._file.value
        key = self._stored.get(key_id) or next((label for label in keys if label.id == key_id), None)
        return None if key is None else self._accounts.of(key)


def check_form(key: bytes, location: str) -> None:
    """Raises FileError if no header can carry the key; the error does not contain it."""
    if not _KEY.fullmatch(key):
        raise FileError(f"--{location}: expected a key of visible ASCII characters, without white space")


def read_keys(path: Path, *, counting: bool) -> tuple[Key, ...]:
    """Returns the keys of a file; `counting`: limits are counted. Raises FileError, without a key, if it is invalid."""
    keys: dict[str, Key] = {}
    for number, line in enumerate(read_file(FILE, path).splitlines(), start=1):
        text, *settings = line.split() or [b"#"]
        if text.startswith(b"#"):
            continue
        location = f"{FILE}: {path}: line {number}"
        check_form(text, location)
        key = _read_line(text, [setting.decode(errors="replace") for setting in settings], location)
        if key.limits.needs_count and not counting:
            raise FileError(f"--{location}: characters and requests_per_minute are counted with --state-dir only")
        if key.name and key.id in keys:
            raise FileError(f"--{location}: expected another name than that of an earlier line")
        keys[key.id] = key
    if not keys:
        raise FileError(f"--{FILE}: {path}: expected one key per line, got none")
    return tuple(keys.values())


def _read_line(text: bytes, settings: Iterable[str], location: str) -> Key:
    values: dict[str, str | list[str]] = {}
    for item in settings:
        setting, separator, value = item.partition("=")
        if not separator or setting not in ("name", *KeyLimits.model_fields):
            # The text may be a part of the key.
            raise FileError(f"--{location}: expected SETTING=VALUE after the key, SETTING being name or a limit")
        values[setting] = value.split(",") if setting == "models" else value
    key, name = _unnamed(text), values.pop("name", None)
    if name is not None and not is_name(str(name)):
        raise FileError(f"--{location}: name: expected up to 64 letters, digits, dots, hyphens and underscores")
    try:
        limits = KeyLimits.model_validate(values)
    except ValidationError as error:
        raise FileError(f"--{location}: {first_problem(error)}") from error
    return replace(key, limits=limits) if name is None else Key(f"{_FILE_ID}{name}", str(name), key.digest, limits)


def _unnamed(text: bytes) -> Key:
    digest = digest_of(text)
    return Key(f"{_FILE_ID}{digest.hex()}", "", digest)


def _load_stored(store: KeyStore) -> tuple[int, dict[str, Key]]:
    # The revision first: a change in between is loaded again next time.
    revision = store.revision()
    return revision, {key.id: key for key in store.list() if key.revoked_seconds is None}
