"""Keys that clients show as `Authorization: Bearer KEY`, over REST and gRPC alike.

Only digests are kept, and no key is ever written anywhere. Comparing takes as long whatever is compared, so that nobody
learns from the clock how much of a key is right. Built by `serve.service`.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Self

from serve.files import FileError, WatchedFiles, read_file

FILE = "api-keys-file"
# What a header can carry.
_KEY = re.compile(rb"[!-~]+")


class KeyRing:
    """The keys that open, in memory or in a file."""

    def __init__(self, keys: Iterable[str]) -> None:
        """Keeps the digests of keys that never change."""
        self._digests = tuple(_digest(key.encode()) for key in keys)
        self._file: WatchedFiles[tuple[bytes, ...]] | None = None

    @classmethod
    def open(cls, path: Path) -> Self:
        """Returns the keys of a file, one a line; they change with it.

        Raises:
            FileError: if it cannot be read or holds no keys.
        """
        ring = cls(())
        ring._file = WatchedFiles("keys", [path], lambda: _load(path))
        return ring

    def refresh(self) -> None:
        """Reads the file again if it changed."""
        if self._file is not None:
            self._file.refresh()

    def opens(self, authorisation: str) -> bool:
        """Tells whether the value of the header `authorization` holds one of the keys."""
        scheme, _, key = authorisation.partition(" ")
        shown = _digest(key.strip().encode(errors="replace"))
        digests = self._digests if self._file is None else self._file.value
        # Every key is compared, whichever is the right one.
        matches = [hmac.compare_digest(shown, digest) for digest in digests]
        return scheme.lower() == "bearer" and any(matches)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def _load(path: Path) -> tuple[bytes, ...]:
    digests = []
    for number, line in enumerate(read_file(FILE, path).splitlines(), start=1):
        key = line.strip()
        if not key or key.startswith(b"#"):
            continue
        if not _KEY.fullmatch(key):
            problem = "expected a key of visible ASCII characters, without white space"
            raise FileError(f"--{FILE}: {path}: line {number}: {problem}")
        digests.append(_digest(key))
    if not digests:
        raise FileError(f"--{FILE}: {path}: no key in it, expected one a line")
    return tuple(digests)
