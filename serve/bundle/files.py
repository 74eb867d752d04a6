"""Reads files of unknown origin: regular ones only, with a limit of size or depth, and errors of one printable line."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path

from pydantic_core import from_json

# Larger than the JSON files and tokenizers of any known model.
MAX_BYTES = 64 << 20
MAX_CHARACTERS = 1000


def one_line(text: str) -> str:
    """Returns a text as one printable line of at most `MAX_CHARACTERS`; a file may put anything into an error."""
    line = "".join(word if word.isprintable() else "?" for word in " ".join(text[: 2 * MAX_CHARACTERS].split()))
    return line if len(line) <= MAX_CHARACTERS else line[: MAX_CHARACTERS - 3] + "..."


def open_file(path: Path) -> BufferedReader:
    """Opens a regular file for reading, and waits for no FIFO; raises OSError if there is none."""
    try:
        file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115
    except PermissionError as error:  # frequent with mounted volumes
        advice = f"not readable by user {os.geteuid()} (run: chmod --recursive a+rX {path.parent})"
        raise PermissionError(error.errno, advice, str(path)) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "expected a regular file", str(path))
    return file


def read_file(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Returns the content of a regular file; raises OSError if it cannot be read or is larger than `max_bytes`."""
    with open_file(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"expected at most {max_bytes} bytes", str(path))
    return content


def read_json(path: Path, max_bytes: int = MAX_BYTES) -> object:
    """Returns JSON of limited depth and digits; raises OSError as `read_file`, ValueError if it is malformed."""
    return from_json(read_file(path, max_bytes), cache_strings="keys")


def sha256_of(path: Path) -> str:
    """Returns the sha256 of a regular file; raises OSError as `open_file`."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Device, inode, size and time of change of each file.
FileStamp = tuple[tuple[int, int, int, int], ...]


def stamp_of(paths: Iterable[Path]) -> FileStamp:
    """Returns what changes if one of the files is replaced or written; raises OSError if one does not exist."""
    found = [path.stat() for path in paths]
    return tuple((item.st_dev, item.st_ino, item.st_size, item.st_mtime_ns) for item in found)
