"""ZIP packages, as office documents are: reads single members, and writes a copy with some of them replaced.

All other members are copied without unpacking them. Packages are untrusted: names, number and sizes are checked first.
"""

import struct
import zlib
from collections.abc import Iterator, Mapping
from copy import copy
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from dragoman.serve.documents.document import UNLIMITED, DocumentError
from dragoman.tables import read_table

_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENTRY_BYTES = 128
_LENGTH_AT = 64
_FOREIGN: dict[str, dict[str, str]] = read_table(__file__, "foreign.yaml")
ENCRYPTED = _FOREIGN["streams"]["EncryptedPackage"]


def describe_foreign(content: bytes) -> str | None:
    """Returns what a file is and how it can be translated; None: it is unknown."""
    if not content.startswith(_COMPOUND):
        return next(
            (problem for start, problem in _FOREIGN["beginnings"].items() if content.startswith(start.encode())), None
        )
    problems = (problem for name, problem in _FOREIGN["streams"].items() if any(_entries(content, name)))
    return next(problems, "an old file of Microsoft Office: save it as .docx, .xlsx or .pptx")


def _entries(content: bytes, name: str) -> Iterator[int]:
    """Yields the offsets of the directory entries of a name in a compound file."""
    wanted = f"{name}\0".encode("utf-16-le")
    offset = content.find(wanted)
    while offset >= 0:
        length = content[offset + _LENGTH_AT : offset + _LENGTH_AT + 2]
        if offset % _ENTRY_BYTES == 0 and int.from_bytes(length, "little") == len(wanted):
            yield offset
        offset = content.find(wanted, offset + 1)


MAX_MEMBERS = 5000
# Deflate reaches 1,032 for the same byte over and over; XML of real documents stays below 100.
MAX_RATIO = 250
# Smaller members may have any ratio.
_RATIO_FROM_BYTES = 1 << 20
_ENCRYPTED, _DESCRIPTOR = 0x1, 0x8
# The header before a member; it ends with the lengths of the name and of the extra field, which follow it.
_HEADER_BYTES, _NAME, _EXTRA = 30, slice(26, 28), slice(28, 30)


class Package:
    """A ZIP file in memory."""

    def __init__(self, content: bytes, unpacked_bytes: int) -> None:
        """Reads the directory of the file; raises DocumentError if it is no ZIP file, or exceeds a limit."""
        self._content = content
        try:
            self._file = ZipFile(BytesIO(content))
            self._members = {
                item.filename: item for item in _checked(self._file.infolist(), len(content), unpacked_bytes)
            }
        except (BadZipFile, ValueError, NotImplementedError, struct.error) as error:
            raise DocumentError(describe_foreign(content) or f"not a ZIP package: {error}") from error
        # A copy needs the headers, which reading alone does not: a file that lies is refused before its translation.
        for info in self._members.values():
            self._packed(info)

    @property
    def names(self) -> list[str]:
        """The names of the members, in the order of the file."""
        return list(self._members)

    def read(self, name: str, max_bytes: int = UNLIMITED) -> bytes:
        """Returns the content of a member; raises DocumentError if there is none, or it is damaged or too large."""
        if name not in self._members:
            raise DocumentError(f"not a document of this format: no member {name}")
        info = self._members[name]
        if info.file_size > max_bytes:
            raise DocumentError(
                f"{info.file_size:,} bytes unpacked, expected at most {max_bytes:,} of a part with text"
            )
        try:
            with self._file.open(info) as member:
                unpacked = member.read(info.file_size)
        except (BadZipFile, EOFError, NotImplementedError, ValueError, zlib.error) as error:
            raise DocumentError(f"member {name}: damaged: {error}") from error
        if len(unpacked) != info.file_size:
            raise DocumentError(f"member {name}: damaged")
        return unpacked

    def replace(self, changed: Mapping[str, bytes]) -> bytes:
        """Returns the package with the new content of some members, at least one."""
        file = BytesIO()
        with ZipFile(file, "w") as package:
            for info in self._members.values():
                member = copy(info)
                member.extra, member.flag_bits = b"", info.flag_bits & ~_DESCRIPTOR
                if info.filename in changed:
                    member.compress_type = ZIP_DEFLATED
                    package.writestr(member, changed[info.filename])
                    member.external_attr = info.external_attr
                else:
                    member.header_offset = package.start_dir
                    file.write(member.FileHeader() + self._packed(info))
                    package.filelist.append(member)
                    package.start_dir = file.tell()
        return file.getvalue()

    def _packed(self, info: ZipInfo) -> bytes:
        header = self._content[info.header_offset : info.header_offset + _HEADER_BYTES]
        lengths = (int.from_bytes(header[field], "little") for field in (_NAME, _EXTRA))
        first = info.header_offset + _HEADER_BYTES + sum(lengths)
        packed = self._content[first : first + info.compress_size]
        if not header.startswith(b"PK\3\4") or len(packed) != info.compress_size:
            raise DocumentError(f"member {info.filename}: damaged")
        return packed


def _checked(infos: list[ZipInfo], content_bytes: int, unpacked_bytes: int) -> list[ZipInfo]:
    if len(infos) > MAX_MEMBERS:
        raise DocumentError(f"{len(infos)} members, expected at most {MAX_MEMBERS}")
    if sum(info.file_size for info in infos) > unpacked_bytes:
        raise DocumentError(f"more than {unpacked_bytes} bytes unpacked")
    if sum(info.compress_size for info in infos) > content_bytes:
        raise DocumentError("not a ZIP package: members overlap")
    names = set[str]()
    for info in infos:
        name = info.filename
        parts = name.replace("\\", "/").split("/")
        if name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0] or "\0" in info.orig_filename:
            raise DocumentError(f"member {name!r}: expected a path inside of the package")
        if name in names:
            raise DocumentError(f"member {name!r}: expected once")
        names.add(name)
        if info.flag_bits & _ENCRYPTED:
            raise DocumentError(ENCRYPTED)
        if info.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise DocumentError(f"member {name!r}: compression method {info.compress_type}, expected deflate")
        if info.file_size > max(_RATIO_FROM_BYTES, MAX_RATIO * info.compress_size):
            raise DocumentError(f"member {name!r}: compressed more than {MAX_RATIO} times")
    return infos
