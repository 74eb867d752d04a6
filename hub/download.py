"""Downloads files over HTTP into a folder: resumable, with progress bars, checked against the hashes of the source.

A file has the suffix `.part` until it is complete and has the right hash. An interrupted download continues there.
"""

import errno
import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hub.names import HubError

PART = ".part"
# A converted bundle is at most as large as its source; graphs and tokenizer take a few megabytes more.
SPACE_FACTOR = 2


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file of a source.

    Attributes:
        name: in the folder.
        url: address.
        size_bytes: None if the source does not state it.
        sha256: of the content; None if the source does not state it.
        git_sha1: object id of git, which hubs state for small files; None if not stated.
        headers: of the request.
    """

    name: str
    url: str
    size_bytes: int | None = None
    sha256: str | None = None
    git_sha1: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def describe_size(files: Sequence[RemoteFile]) -> str:
    """Returns the size of files as a line shows it before a download."""
    if any(each.size_bytes is None for each in files):
        return "files of unknown size"
    return f"{sum(each.size_bytes or 0 for each in files) / 1e6:,.0f} MB"


def download(files: Sequence[RemoteFile], folder: Path) -> None:
    """Downloads the files that the folder lacks.

    Raises:
        HubError: if there is too little space, the source does not answer, or a hash differs.
    """
    missing = [each for each in files if not (folder / each.name).exists()]
    with explain_space(folder):
        folder.mkdir(parents=True, exist_ok=True)
        _check_space(missing, folder)
        for each in missing:
            part = folder / f"{each.name}{PART}"
            _fetch(each, part)
            _check_hash(each, part)
            part.rename(folder / each.name)


@contextmanager
def explain_space(folder: Path) -> Iterator[None]:
    """Reports a full disk, and removes the incomplete files of the folder, which take space.

    Raises:
        HubError: if the block finds the disk full.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        for part in folder.glob(f"*{PART}"):
            part.unlink()
        raise HubError(_no_space(folder, "the disk is full")) from error


def _check_space(files: Sequence[RemoteFile], folder: Path) -> None:
    needed = SPACE_FACTOR * sum(each.size_bytes or 0 for each in files)
    present = sum(part.stat().st_size for part in folder.glob(f"*{PART}"))
    free = shutil.disk_usage(folder).free
    if needed - present > free:
        raise HubError(_no_space(folder, f"needs {needed / 1e6:,.0f} MB for download and conversion"))


def _no_space(folder: Path, problem: str) -> str:
    free = shutil.disk_usage(folder).free if folder.exists() else 0
    advice = "remove models with `dragoman remove NAME`, or set DRAGOMAN_CACHE to a folder on another disk"
    return f"{folder}: {problem}, {free / 1e6:,.0f} MB are free: {advice}"


def _fetch(file: RemoteFile, part: Path) -> None:
    """Downloads what `part` lacks."""
    from huggingface_hub.file_download import http_get  # noqa: PLC0415 - the library takes long to import

    with part.open("ab") as target:
        http_get(
            file.url,
            target,
            resume_size=target.tell(),
            headers=dict(file.headers),
            expected_size=file.size_bytes,
            displayed_filename=file.name,
        )


def _check_hash(file: RemoteFile, part: Path) -> None:
    for expected, digest in ((file.sha256, hashlib.sha256()), (file.git_sha1, _git_digest(part))):
        if expected is None:
            continue
        with part.open("rb") as content:
            hashlib.file_digest(content, lambda digest=digest: digest)  # type: ignore[misc]
        if digest.hexdigest() != expected:
            part.unlink()
            problem = f"{digest.name} is {digest.hexdigest()}, expected {expected} as the hub states"
            raise HubError(f"{file.name}: {problem}: pull it again; if that fails, the source is damaged")


def _git_digest(part: Path) -> "hashlib._Hash":
    """Returns the beginning of the object id of a file in git."""
    return hashlib.sha1(f"blob {part.stat().st_size}\0".encode(), usedforsecurity=False)
