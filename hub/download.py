"""Downloads files into a folder: resumable, with progress bars, checked against the sizes and hashes of the hub.

A file has the suffix `.part` until it is complete and has the right hash. An interrupted download continues there. A
part that cannot become the file is removed, so the next download starts anew. A file of gzip is unpacked up to the
stated size of its content. `dragoman.hub.connection` has the bounds of requests.
"""

import errno
import gzip
import hashlib
import re
import shutil
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Never

from tqdm import tqdm

from dragoman.hub.connection import (
    HubAccess,
    StatusError,
    TemporaryError,
    address_of,
    in_session,
    receive,
    responding,
    stated_length,
    with_retries,
)
from dragoman.hub.names import HubError
from dragoman.hub.progress import show_bytes

if TYPE_CHECKING:
    import httpx

PART = ".part"
# The content of a file of gzip, next to its part.
UNPACKED_PART = ".unpacked.part"
# A converted bundle is at most as large as its source; graphs and tokenizer take a few megabytes more.
SPACE_FACTOR = 2
# No model has such a file.
MAX_FILE_BYTES = 1 << 40
# Limit of a file whose size no hub and no header states.
MAX_UNSTATED_BYTES = 4 << 30
GZIP = ".gz"
# What gzip adds to a content that it cannot compress.
GZIP_BYTES = 1 << 16
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a hub.

    Attributes:
        name: path in the folder.
        url: address.
        size_bytes: None if the hub does not state it.
        sha256: hash of the content; None if the hub does not state it.
        git_sha1: object id of git, which hubs state for small files; None if not stated.
        unpacked_bytes: size of the content of a file of gzip; None if the hub does not state it, or for other files.
    """

    name: str
    url: str
    size_bytes: int | None = None
    sha256: str | None = None
    git_sha1: str | None = None
    unpacked_bytes: int | None = None

    def __post_init__(self) -> None:
        """Raises HubError if the stated size is impossible."""
        if self.final_bytes is not None and not 0 <= self.final_bytes <= MAX_FILE_BYTES:
            problem = f"the hub states a size of {self.final_bytes:,} bytes, expected 0 to {MAX_FILE_BYTES:,}"
            raise HubError(f"{self.name} ({self.url}): {problem}: choose another model or revision")

    @property
    def is_packed(self) -> bool:
        """True for a file of gzip that is unpacked here."""
        return self.url.endswith(GZIP) and not self.name.endswith(GZIP)

    @property
    def final_bytes(self) -> int | None:
        """Size of the file on this machine; None if the hub does not state it."""
        return self.unpacked_bytes if self.is_packed else self.size_bytes

    def present_bytes(self, folder: Path) -> int:
        """Returns the bytes in a folder; a file that is not unpacked yet counts as far as it has arrived."""
        paths = [folder / f"{self.name}{suffix}" for suffix in ("", PART, UNPACKED_PART)]
        largest_bytes = max(path.stat().st_size if path.exists() else 0 for path in paths)
        return largest_bytes if self.final_bytes is None else min(largest_bytes, self.final_bytes)


def describe_size(files: Sequence[RemoteFile]) -> str:
    """Returns the size of files as a line shows it before a download."""
    total_bytes = _total(files)
    return "files of unknown size" if total_bytes is None else f"{total_bytes / 1e6:,.0f} MB"


def _total(files: Sequence[RemoteFile]) -> int | None:
    sizes = [file.final_bytes for file in files]
    return None if None in sizes else sum(filter(None, sizes))


def download(access: HubAccess, files: Sequence[RemoteFile], folder: Path) -> None:
    """Downloads the files that the folder lacks.

    Raises:
        HubError: if there is too little space, the hub does not answer, or a size or hash differs.
        KeyboardInterrupt: after a line that names the partial file.
    """
    total_bytes = _total(files)

    def show() -> None:
        show_bytes(sum(file.present_bytes(folder) for file in files), total_bytes)

    show()
    missing = [file for file in files if not (folder / file.name).exists()]
    if not missing:
        return
    needed_bytes = SPACE_FACTOR * sum(file.final_bytes or 0 for file in missing)

    async def fetch_all(client: "httpx.AsyncClient") -> None:
        for file in missing:
            await _Download(access, client, file, folder).run()

    with explain_space(folder, needed_bytes):
        folder.mkdir(parents=True, exist_ok=True)
        _check_space(needed_bytes, folder)
        try:
            in_session(access, fetch_all, show)
        except KeyboardInterrupt:
            paths = (path for path in folder.iterdir() if not path.name.endswith(UNPACKED_PART))
            kept = f"{sum(path.stat().st_size for path in paths) / 1e6:,.1f} MB are kept"
            print(f"{access.model}: interrupted, {kept}: the same command continues the download", file=sys.stderr)
            raise


@contextmanager
def explain_space(folder: Path, needed_bytes: int) -> Iterator[None]:
    """Reports a full disk as a HubError, and removes the incomplete files of the folder, which take space."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free_bytes = _free_bytes(folder)
        for part in folder.glob(f"*{PART}"):
            part.unlink()
        raise HubError(_no_space(folder, "the disk is full: ", needed_bytes, free_bytes)) from error


def _check_space(needed_bytes: int, folder: Path) -> None:
    present_bytes = sum(part.stat().st_size for part in folder.glob(f"*{PART}"))
    free_bytes = _free_bytes(folder)
    if needed_bytes - present_bytes > free_bytes:
        raise HubError(_no_space(folder, "", needed_bytes - present_bytes, free_bytes))


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(next(path for path in (folder, *folder.absolute().parents) if path.exists())).free


def _no_space(folder: Path, problem: str, needed_bytes: int, free_bytes: int) -> str:
    sizes = f"needs {needed_bytes / 1e6:,.0f} MB for download and conversion, {free_bytes / 1e6:,.0f} MB are free"
    advice = "remove models with `dragoman remove NAME`, or set DRAGOMAN_CACHE to a folder on another disk"
    return f"{folder}: {problem}{sizes}: {advice}"


def _limit(folder: Path) -> int:
    """Returns the most bytes of a file whose size nothing states."""
    return min(MAX_UNSTATED_BYTES, _free_bytes(folder) // SPACE_FACTOR)


class _Download:
    """The download of a file into its part; the content of a file of gzip is then unpacked into a second one."""

    def __init__(self, access: HubAccess, client: "httpx.AsyncClient", file: RemoteFile, folder: Path) -> None:
        self._access, self._client, self._file, self._folder = access, client, file, folder
        self._part = folder / f"{file.name}{PART}"
        self._content = folder / f"{file.name}{UNPACKED_PART}" if file.is_packed else self._part

    async def run(self) -> None:
        """Downloads what the part lacks, checks the file and gives it its name."""
        file = self._file
        with tqdm(desc=file.name, total=file.size_bytes, unit="B", unit_scale=True, disable=None) as bar:
            await with_retries(self._access, lambda: self._continue(bar), self._size)
        if file.is_packed:
            self._unpack()
        self._check_hash()
        self._content.rename(self._folder / file.name)

    async def _continue(self, bar: "tqdm[Never]") -> None:
        """Requests the rest of a file once; a part that is too long or that the hub does not continue starts anew."""
        start_bytes, size_bytes = self._size(), self._file.size_bytes
        if start_bytes == size_bytes:
            self._part.touch()  # a file without content
            return
        if size_bytes is not None and start_bytes > size_bytes:
            start_bytes = self._remove()
        headers = {"range": f"bytes={start_bytes}-"} if start_bytes else {}
        try:
            async with responding(self._access, self._client, "GET", self._file.url, headers) as response:
                await self._write(response, bar)
        except StatusError as error:
            if error.status != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not start_bytes:
                raise
            self._remove()
            await self._continue(bar)

    async def _write(self, response: "httpx.Response", bar: "tqdm[Never]") -> None:
        """Writes a body to the part, up to the size of the file."""
        file, start_bytes, length_bytes = self._file, self._start(response), stated_length(response)
        end_bytes = None if length_bytes is None else start_bytes + length_bytes
        expected_bytes = end_bytes if file.size_bytes is None else file.size_bytes
        if end_bytes is not None and end_bytes != expected_bytes:
            raise self._wrong_size(f"{end_bytes:,}", f"{expected_bytes:,}")
        if file.size_bytes is None:
            _check_space(SPACE_FACTOR * (expected_bytes or 0), self._folder)
        limit_bytes = _limit(self._folder) if expected_bytes is None else expected_bytes
        if file.unpacked_bytes is not None:
            limit_bytes = min(limit_bytes, file.unpacked_bytes + file.unpacked_bytes // 1000 + GZIP_BYTES)
        bar.n = start_bytes
        with self._part.open("ab" if start_bytes else "wb") as target:

            def take(piece: bytes) -> None:
                if target.tell() + len(piece) > limit_bytes:
                    raise self._wrong_size("more", f"at most {limit_bytes:,}")
                target.write(piece)
                bar.update(len(piece))

            await receive(self._access, response, take)
        if expected_bytes is not None and self._size() < expected_bytes:
            problem = f"{file.url}: ends after {self._size():,} of {expected_bytes:,} bytes"
            raise TemporaryError(self._access, problem)

    def _start(self, response: "httpx.Response") -> int:
        """Returns where a body belongs in the file: at the end of the part; at the beginning if the hub sends all."""
        if response.status_code != HTTPStatus.PARTIAL_CONTENT:
            return 0
        given = re.match(r"bytes ([0-9]{1,18})-", response.headers.get("content-range", ""))
        if given is None or int(given[1]) != self._size():
            self._remove()
            address = address_of(response.request.url)
            raise TemporaryError(self._access, f"{address}: answers with another range than the requested one")
        return self._size()

    def _unpack(self) -> None:
        """Unpacks a file of gzip, up to one byte more than its content may have."""
        limit_bytes = _limit(self._folder) if self._file.unpacked_bytes is None else self._file.unpacked_bytes
        if not self._size():
            raise self._damaged(f"{self._file.url}: no file of gzip: empty")
        try:
            with gzip.open(self._part) as packed, self._content.open("wb") as content:
                while piece := packed.read(min(BLOCK_BYTES, limit_bytes + 1 - content.tell())):
                    content.write(piece)
                size_bytes = content.tell()
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise self._damaged(f"{self._file.url}: no file of gzip: {error}") from error
        if size_bytes > limit_bytes or size_bytes < (self._file.unpacked_bytes or 0):
            sent = "more" if size_bytes > limit_bytes else f"{size_bytes:,}"
            raise self._wrong_size(sent, f"{limit_bytes:,} after unpacking")
        self._part.unlink()

    def _check_hash(self) -> None:
        # An object id of git is the hash of a header and the content.
        header = f"blob {self._content.stat().st_size}\0".encode()
        git_digest = hashlib.sha1(header, usedforsecurity=False)
        for expected, digest in ((self._file.sha256, hashlib.sha256()), (self._file.git_sha1, git_digest)):
            if expected is None:
                continue
            with self._content.open("rb") as content:
                hashlib.file_digest(content, lambda digest=digest: digest)  # type: ignore[misc]
            if digest.hexdigest() != expected:
                raise self._damaged(f"{digest.name} is {digest.hexdigest()}, expected {expected} as the hub states")

    def _size(self) -> int:
        """Returns the bytes of the part, as the hub sends them."""
        return self._part.stat().st_size if self._part.exists() else 0

    def _remove(self) -> int:
        """Removes what is here of the file and returns its size, 0."""
        self._part.unlink(missing_ok=True)
        self._content.unlink(missing_ok=True)
        return 0

    def _wrong_size(self, sent: str, expected: str) -> HubError:
        problem = f"{self._file.url} sends {sent} bytes, expected {expected}"
        return self._refusal(problem, "choose another revision or check the address of the hub")

    def _damaged(self, problem: str) -> HubError:
        return self._refusal(problem, "the source is damaged")

    def _refusal(self, problem: str, advice: str) -> HubError:
        """Removes what is here of the file, so that it starts anew, and returns the error."""
        self._remove()
        where = f"{self._access.model}: {self._file.name}"
        return HubError(f"{where}: {problem}: repeat the command; if that fails, {advice}")
