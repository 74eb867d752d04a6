"""Reads the files of a folder or an archive without unpacking it: .deb, .zip, .whl, .xpi, .jar, .tgz, .tar.gz.

An archive inside of an archive is read too: its files have its path before their own. A file in gzip has its path
without .gz.
"""

import gzip
import io
import lzma
import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from dragoman.model.errors import CorpusError, reason_of

# Archives that language packages contain.
_INNER = (".xpi", ".jar")
_ZIP = (".zip", ".whl", ".xpi", ".jar")
_TAR = (".tar.gz", ".tgz", ".tar.xz")
_AR_MAGIC = b"!<arch>\n"
_AR_HEADER_BYTES = 60


class Member(NamedTuple):
    """A file of an archive: its path with slashes, and its content."""

    path: str
    content: bytes


# Whether a path is wanted: any value but an empty one.
Wanted = Callable[[str], object]


def read_members(path: Path, wanted: Wanted) -> Iterator[Member]:
    """Yields the files of a folder or an archive whose paths are wanted; raises CorpusError if it cannot be read."""
    try:
        if path.is_dir():
            names = sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
            yield from _chosen(names, lambda name: (path / name).read_bytes(), wanted)
        else:
            yield from _read_archive(path.name, path.read_bytes(), wanted)
    except (OSError, EOFError, ValueError, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile) as error:
        raise CorpusError(f"{path}: cannot be read: {reason_of(error)}") from error


def _read_archive(name: str, content: bytes, wanted: Wanted) -> Iterator[Member]:
    if name.endswith(".deb"):
        yield from _read_tar(_data_of_deb(content), wanted)
    elif name.endswith(_TAR):
        yield from _read_tar(content, wanted)
    elif name.endswith(_ZIP):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            yield from _chosen(sorted(archive.namelist()), archive.read, wanted)
    else:
        raise ValueError("expected a folder, or an archive in .deb, .tar.gz, .tgz, .zip, .whl, .xpi or .jar")


def _read_tar(content: bytes, wanted: Wanted) -> Iterator[Member]:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        # Members are read in their order: going back in a compressed file means to read it from its start.
        for entry in archive:
            if entry.isfile():
                yield from _chosen([str(PurePosixPath(entry.name))], partial(_content, archive, entry), wanted)


def _content(archive: tarfile.TarFile, entry: tarfile.TarInfo, _: str) -> bytes:
    file = archive.extractfile(entry)
    return file.read() if file else b""


def _chosen(names: Iterable[str], read: Callable[[str], bytes], wanted: Wanted) -> Iterator[Member]:
    """Yields the wanted files, and those of archives among the files."""
    for name in names:
        plain = name.removesuffix(".gz")
        if name.endswith(_INNER):
            for path, content in _read_archive(name, read(name), partial(_is_wanted_inside, wanted, name)):
                yield Member(f"{name}/{path}", content)
        elif wanted(plain) and not name.endswith("/"):
            yield Member(plain, read(name) if plain == name else gzip.decompress(read(name)))


def _is_wanted_inside(wanted: Wanted, archive: str, path: str) -> object:
    return wanted(f"{archive}/{path}")


def _data_of_deb(content: bytes) -> bytes:
    """Returns the compressed tar file with the files of a Debian package, which is an ar archive (deb(5))."""
    position = len(_AR_MAGIC)
    if not content.startswith(_AR_MAGIC):
        raise ValueError("expected a Debian package")
    while position + _AR_HEADER_BYTES <= len(content):
        header = content[position : position + _AR_HEADER_BYTES]
        name, size = header[:16].decode("ascii").rstrip(" /"), int(header[48:58])
        position += _AR_HEADER_BYTES
        if re.fullmatch(r"data\.tar(\.(gz|xz|bz2))?", name):
            return content[position : position + size]
        position += size + size % 2
    raise ValueError("expected a Debian package with a data.tar in gz, xz or bz2")
