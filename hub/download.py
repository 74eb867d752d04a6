"""Downloads files into a folder: resumable, with progress bars, checked against the sizes and hashes of the hub.

A file has the suffix `.part` until it is complete and has the right hash. An interrupted download continues there. A
part that cannot become the file is removed, so the next download starts anew. `dragoman.hub.connection` has the bounds
of requests.
"""

import errno
import hashlib
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Never

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

if TYPE_CHECKING:
    import httpx

PART = ".part"
# A converted bundle is at most as large as its source; graphs and tokenizer take a few megabytes more.
SPACE_FACTOR = 2
# No model has such a file.
MAX_FILE_BYTES = 1 << 40
# Limit of a file whose size no hub and no header states.
MAX_UNSTATED_BYTES = 4 << 30


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a hub.

    Attributes:
        name: in the folder.
        url: address.
        size_bytes: None if the hub does not state it.
        sha256: of the content; None if the hub does not state it.
        git_sha1: object id of git, which hubs state for small files; None if not stated.
    """

    name: str
    url: str
    size_bytes: int | None = None
    sha256: str | None = None
    git_sha1: str | None = None

    def __post_init__(self) -> None:
        """Raises HubError if the stated size is impossible."""
        if self.size_bytes is not None and not 0 <= self.size_bytes <= MAX_FILE_BYTES:
            problem = f"the hub states a size of {self.size_bytes:,} bytes, expected 0 to {MAX_FILE_BYTES:,}"
            raise HubError(f"{self.name} ({self.url}): {problem}: choose another model or revision")


def describe_size(files: Sequence[RemoteFile]) -> str:
    """Returns the size of files as a line shows it before a download."""
    if any(file.size_bytes is None for file in files):
        return "files of unknown size"
    return f"{sum(file.size_bytes or 0 for file in files) / 1e6:,.0f} MB"


def download(access: HubAccess, files: Sequence[RemoteFile], folder: Path) -> None:
    """Downloads the files that the folder lacks.

    Raises:
        HubError: if there is too little space, the hub does not answer, or a size or hash differs.
        KeyboardInterrupt: after a line that names the partial file.
    """
    missing = [file for file in files if not (folder / file.name).exists()]
    if not missing:
        return
    needed_bytes = SPACE_FACTOR * sum(file.size_bytes or 0 for file in missing)

    async def fetch_all(client: "httpx.AsyncClient") -> None:
        for file in missing:
            await _fetch(access, client, file, folder)

    with explain_space(folder, needed_bytes):
        folder.mkdir(parents=True, exist_ok=True)
        _check_space(needed_bytes, folder)
        try:
            in_session(access, fetch_all)
        except KeyboardInterrupt:
            kept = f"{sum(path.stat().st_size for path in folder.iterdir()) / 1e6:,.1f} MB are kept"
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


async def _fetch(access: HubAccess, client: "httpx.AsyncClient", file: RemoteFile, folder: Path) -> None:
    """Downloads what the part of a file lacks, checks it and gives it its name."""
    part = folder / f"{file.name}{PART}"
    with tqdm(desc=file.name, total=file.size_bytes, unit="B", unit_scale=True, disable=None) as bar:
        await with_retries(access, lambda: _continue(access, client, file, part, bar), lambda: _size_of(part))
    _check_hash(access, file, part)
    part.rename(folder / file.name)


async def _continue(
    access: HubAccess, client: "httpx.AsyncClient", file: RemoteFile, part: Path, bar: "tqdm[Never]"
) -> None:
    """Requests the rest of a file once; a part that is too long or that the hub does not continue starts anew."""
    start_bytes = _size_of(part)
    if start_bytes == file.size_bytes:
        with _opened(part, start_bytes):  # creates a file without content
            return
    if file.size_bytes is not None and start_bytes > file.size_bytes:
        start_bytes = _remove(part)
    try:
        async with responding(access, client, "GET", file.url, _range(start_bytes)) as response:
            await _write(access, response, file, part, bar)
    except StatusError as error:
        if error.status != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not start_bytes:
            raise
        _remove(part)
        async with responding(access, client, "GET", file.url) as response:
            await _write(access, response, file, part, bar)


async def _write(
    access: HubAccess, response: "httpx.Response", file: RemoteFile, part: Path, bar: "tqdm[Never]"
) -> None:
    """Writes a body to a part, up to the size of the file."""
    start_bytes = _start(access, response, part)
    length_bytes = stated_length(response)
    end_bytes = None if length_bytes is None else start_bytes + length_bytes
    expected_bytes = end_bytes if file.size_bytes is None else file.size_bytes
    if end_bytes is not None and end_bytes != expected_bytes:
        _remove(part)
        raise _wrong_size(access, file, f"{end_bytes:,}", f"{expected_bytes:,}")
    if file.size_bytes is None:
        _check_space(SPACE_FACTOR * (expected_bytes or 0), part.parent)
    limit_bytes = _limit(part.parent) if expected_bytes is None else expected_bytes
    bar.n = start_bytes
    with _opened(part, start_bytes) as target:

        def take(piece: bytes) -> None:
            if target.tell() + len(piece) > limit_bytes:
                _remove(part)
                raise _wrong_size(access, file, "more", f"at most {limit_bytes:,}")
            target.write(piece)
            bar.update(len(piece))

        await receive(access, response, take)
    if expected_bytes is not None and _size_of(part) < expected_bytes:
        raise TemporaryError(access, f"{file.url}: ends after {_size_of(part):,} of {expected_bytes:,} bytes")


def _start(access: HubAccess, response: "httpx.Response", part: Path) -> int:
    """Returns where a body belongs in a file: at the end of the part, or at the beginning if the hub sends it all."""
    if response.status_code != HTTPStatus.PARTIAL_CONTENT:
        return 0
    given = re.match(r"bytes ([0-9]{1,18})-", response.headers.get("content-range", ""))
    if given is None or int(given[1]) != _size_of(part):
        _remove(part)
        address = address_of(response.request.url)
        raise TemporaryError(access, f"{address}: answers with another range than the requested one")
    return _size_of(part)


def _range(start_bytes: int) -> dict[str, str]:
    return {"range": f"bytes={start_bytes}-"} if start_bytes else {}


@contextmanager
def _opened(part: Path, start_bytes: int) -> Iterator[BinaryIO]:
    """Opens a part for more bytes, or anew."""
    with part.open("ab" if start_bytes else "wb") as target:
        yield target


def _size_of(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _remove(part: Path) -> int:
    """Removes a part and returns its size, 0."""
    part.unlink(missing_ok=True)
    return 0


def _limit(folder: Path) -> int:
    """Returns the most bytes of a file whose size nothing states."""
    return min(MAX_UNSTATED_BYTES, _free_bytes(folder) // SPACE_FACTOR)


def _wrong_size(access: HubAccess, file: RemoteFile, sent: str, expected: str) -> HubError:
    problem = f"{file.url} sends {sent} bytes, expected {expected}"
    advice = "repeat the command; if that fails, choose another revision or check the address of the hub"
    return HubError(f"{access.model}: {file.name}: {problem}: {advice}")


def _check_hash(access: HubAccess, file: RemoteFile, part: Path) -> None:
    for expected, digest in ((file.sha256, hashlib.sha256()), (file.git_sha1, _git_digest(part))):
        if expected is None:
            continue
        with part.open("rb") as content:
            hashlib.file_digest(content, lambda digest=digest: digest)  # type: ignore[misc]
        if digest.hexdigest() != expected:
            part.unlink()
            problem = f"{digest.name} is {digest.hexdigest()}, expected {expected} as the hub states"
            advice = "pull it again; if that fails, the source is damaged"
            raise HubError(f"{access.model}: {file.name}: {problem}: {advice}")


def _git_digest(part: Path) -> "hashlib._Hash":
    """Returns the beginning of the object id of a file in git."""
    return hashlib.sha1(f"blob {part.stat().st_size}\0".encode(), usedforsecurity=False)
