"""The cache of this user: converted bundles by content, and a record for each installed name.

    DRAGOMAN_CACHE (default: ~/.cache/dragoman)
        bundles/KEY/            a bundle; KEY is a hash of the source files and the conversion
        names/NAME.json         the record of an installed name
        downloads/SOURCE/       files of a download that is not complete or not converted yet
        registries/ADDRESS      the last good copy of a registry
        sets/KEY/               links to the bundles that one server holds
        locks/NAME.lock         one process at a time installs or removes a name
        fetches/NAME            the progress of a download that a server needs

A record, a copy and a bundle appear complete or not at all.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, ValidationError

from dragoman.hub.names import HubError
from dragoman.hub.progress import Watch, report
from dragoman.serve.bundle.bundle import MANIFEST_FILE

if TYPE_CHECKING:
    from filelock import FileLock

VARIABLE = "DRAGOMAN_CACHE"
# Distinguishes the lock of a fetch from that of an installation.
FETCH = "fetch of "
# The lock of a process that compares the size of its download with those of others.
SIZES = "sizes of fetches"
# Names of temporary folders begin so; a server ignores folders that begin with a dot.
_HIDDEN = "."
# Leaves room for suffixes in the 255 bytes of a file name.
MAX_FILE_NAME_BYTES = 200


class Installed(BaseModel):
    """The record of an installed name.

    Attributes:
        name: as the user gave it.
        model: name of the model in requests and metrics.
        origin: repository with commit, address of a package, or path.
        license: as the hub states it.
        key: of the bundle.
        directions: pairs of languages, as in en-de, or the number of languages.
        size_bytes: of the bundle.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    model: str
    origin: str
    license: str | None
    key: str
    directions: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Store:
    """The cache in a folder."""

    folder: Path

    @classmethod
    def of_user(cls) -> "Store":
        """Returns the cache that the environment names; raises HubError if its path is that of a file."""
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(os.environ.get(VARIABLE) or Path(base) / "dragoman")
        file = next((path for path in (folder, *folder.parents) if path.is_file()), None)
        if file is not None:
            raise HubError(f"{file}: is a file, expected the folder of the cache: set {VARIABLE} to another path")
        return cls(folder)

    def bundle(self, key: str) -> Path:
        """Returns the folder of a bundle, which may not exist."""
        return self.folder / "bundles" / key

    def downloads(self, source: str) -> Path:
        """Returns the folder for the files of a source, which may not exist."""
        return self.folder / "downloads" / _file_name(source)

    def registry(self, address: str) -> Path:
        """Returns the file for the last good copy of a registry, which may not exist."""
        return self.folder / "registries" / _file_name(address)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Lets one process at a time into the block; another one waits and reports that."""
        with self.try_lock(name) as is_locked:
            if is_locked:
                yield
                return
        report(f"{name}: another process installs it; waiting")
        with self._lock(name):
            yield

    @contextmanager
    def try_lock(self, name: str) -> Iterator[bool]:
        """Yields whether the block has the lock, which no other process has then; waits for nothing."""
        from filelock import Timeout  # noqa: PLC0415 - a client of a server does not need the library

        lock = self._lock(name)
        with suppress(Timeout):
            lock.acquire(timeout=0)
        try:
            yield lock.is_locked
        finally:
            lock.release()

    def _lock(self, name: str) -> "FileLock":
        from filelock import FileLock  # noqa: PLC0415 - as above

        path = self.folder / "locks" / f"{_file_name(name)}.lock"
        path.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(path)

    @contextmanager
    def fetching(self, name: str, max_bytes: float) -> Iterator[Watch]:
        """Lets one process at a time fetch a name, and yields what shows the bytes of the download in `fetches`.

        It raises HubError if the size of the download exceeds what the installed models and other fetches leave of
        `max_bytes`. A size counts for others from the moment that it is known.
        """
        path = self.folder / "fetches" / _file_name(name)
        reserved_bytes = -1

        def show(done_bytes: int, total_bytes: int | None) -> None:
            nonlocal reserved_bytes
            size_bytes = max(done_bytes, total_bytes or 0)
            content = f"{done_bytes} {total_bytes or 0}".encode()
            if size_bytes <= reserved_bytes:
                write_atomically(path, content)
                return
            with self._lock(SIZES):
                left_bytes = max_bytes - self.used_bytes(but=name)
                if size_bytes > left_bytes:
                    raise HubError(f"{name}: {size_bytes:,} bytes, --on-demand-max-bytes leaves {left_bytes:,}")
                write_atomically(path, content)
            reserved_bytes = size_bytes

        with self.lock(f"{FETCH}{name}"):
            try:
                yield show
            finally:
                path.unlink(missing_ok=True)

    def used_bytes(self, but: str = "") -> int:
        """Returns the size of all installed models, with those of the fetches of all names but one."""
        fetched = sum(max(sizes) for name, sizes in self.fetches().items() if name != but)
        return fetched + sum(model.size_bytes for model in self.installed())

    def fetches(self) -> dict[str, tuple[int, int]]:
        """Returns the bytes on this machine, and those of the whole download, of each name that is fetched now."""
        found = {}
        for path in (self.folder / "fetches").glob("[!.]*"):
            name = unquote(path.name)
            with suppress(OSError, ValueError), self.try_lock(f"{FETCH}{name}") as is_locked:
                if not is_locked:  # A process that was killed leaves its file.
                    done, total = map(int, path.read_text().split())
                    found[name] = done, total
        return found

    def find(self, name: str) -> Installed | None:
        """Returns the record of a name whose bundle exists."""
        return self._read(self._record(name))

    def installed(self) -> list[Installed]:
        """Returns all records whose bundles exist, by name."""
        records = filter(None, map(self._read, (self.folder / "names").glob("*.json")))
        return sorted(records, key=lambda record: record.name)

    def record(self, installed: Installed) -> None:
        """Writes a record."""
        write_atomically(self._record(installed.name), installed.model_dump_json(indent=1).encode() + b"\n")

    def remove(self, installed: Installed) -> bool:
        """Removes a record, and its bundle if no other record has it; returns whether the bundle is removed."""
        self._record(installed.name).unlink(missing_ok=True)
        if any(model.key == installed.key for model in self.installed()):
            return False
        bundle = self.bundle(installed.key)
        for link in self.folder.glob("sets/*/*"):
            if link.resolve() == bundle.resolve():
                shutil.rmtree(link.parent, ignore_errors=True)
        # A bundle without its manifest is none, whenever this process ends.
        (bundle / MANIFEST_FILE).unlink(missing_ok=True)
        shutil.rmtree(bundle, ignore_errors=True)
        return True

    def clear_bundle(self, key: str) -> None:
        """Removes what an interrupted conversion or removal left of a bundle; requires the lock of the key."""
        for path in self.bundle(key).parent.glob(f"{_HIDDEN}{key}-*"):
            shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(self.bundle(key), ignore_errors=True)

    def link(self, bundles: Mapping[str, Path]) -> Path:
        """Returns a folder with a link to the bundle of each model, under the name of the model."""
        content = "\n".join(f"{model} {bundle.resolve()}" for model, bundle in bundles.items())
        folder = self.folder / "sets" / hashlib.sha256(content.encode()).hexdigest()[:32]
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            workshop = Path(tempfile.mkdtemp(dir=folder.parent, prefix=_HIDDEN))
            for model, bundle in bundles.items():
                (workshop / model).symlink_to(bundle.resolve())
            try:
                workshop.rename(folder)
            except OSError:  # another process was first
                shutil.rmtree(workshop)
        return folder

    def _record(self, name: str) -> Path:
        return self.folder / "names" / f"{_file_name(name)}.json"

    def _read(self, path: Path) -> Installed | None:
        """Returns a record; None if there is none, it has no bundle, or another version of Dragoman wrote it."""
        with suppress(OSError, ValidationError):
            record = Installed.model_validate_json(path.read_bytes())
            if (self.bundle(record.key) / MANIFEST_FILE).is_file():
                return record
        return None


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file that appears complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=_HIDDEN, delete=False) as file:
        file.write(content)
    Path(file.name).replace(path)


def copy_bundle(bundle: Path, folder: Path) -> Path:
    """Copies a bundle atomically, unless the folder holds the same one; raises HubError if it holds something else."""
    manifest = folder / MANIFEST_FILE
    if folder.exists() and not manifest.is_file():
        raise HubError(f"{folder}: exists and has no {MANIFEST_FILE}: choose another folder, only a bundle is replaced")
    if manifest.is_file() and manifest.read_bytes() == (bundle / MANIFEST_FILE).read_bytes():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=_HIDDEN) as workshop:
        shutil.copytree(bundle, Path(workshop) / "new")
        if folder.exists():
            folder.rename(Path(workshop) / "old")
        (Path(workshop) / "new").rename(folder)
    return folder


def _file_name(name: str) -> str:
    """Returns a file name that is as different from others as the name."""
    quoted = quote(name, safe="@:")
    return quoted if len(quoted) <= MAX_FILE_NAME_BYTES else hashlib.sha256(name.encode()).hexdigest()
