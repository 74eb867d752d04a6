"""ZIP packages, as office documents are: reads single members, and writes a copy with some of them replaced.

All other members are copied without unpacking them. Packages are untrusted: names, number and sizes are checked first.
"""

import struct
import zlib
from collections.abc import Mapping
from io import BytesIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from dragoman.serve.documents.document import UNLIMITED, DocumentError
from dragoman.serve.documents.foreign import ENCRYPTED, describe_foreign

MAX_MEMBERS = 5000
# Deflate reaches 1,032 for the same byte over and over; XML of real documents stays below 100.
MAX_RATIO = 250
# Smaller members may have any ratio.
_RATIO_FROM_BYTES = 1 << 20
_ENCRYPTED, _DESCRIPTOR, _UTF8 = 0x1, 0x8, 0x800
_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s4B4H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_VERSION = 20
_MAX_BYTES = (1 << 32) - 1


class Package:
    """A ZIP file in memory."""

    def __init__(self, content: bytes, unpacked_bytes: int) -> None:
        """Reads the directory of the file; raises DocumentError if it is no ZIP file, or exceeds a limit."""
        self._content = content
        try:
            with ZipFile(BytesIO(content)) as file:
                self._members = {
                    item.filename: item for item in _checked(file.infolist(), len(content), unpacked_bytes)
                }
        except (BadZipFile, ValueError, NotImplementedError, struct.error) as error:
            raise DocumentError(describe_foreign(content) or f"not a ZIP package: {error}") from error

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
        packed = self._packed(info)
        try:
            unpacked = packed if info.compress_type == ZIP_STORED else _inflate(packed, info.file_size)
        except zlib.error as error:
            raise DocumentError(f"member {name}: {error}") from error
        if len(unpacked) != info.file_size or zlib.crc32(unpacked) != info.CRC:
            raise DocumentError(f"member {name}: damaged")
        return unpacked

    def replace(self, changed: Mapping[str, bytes]) -> bytes:
        """Returns the package with the new content of some members."""
        parts, directory, offset = list[bytes](), list[bytes](), 0
        for info in self._members.values():
            name, flags = _written_name(info)
            if info.filename in changed:
                data = changed[info.filename]
                method, crc, size, packed = ZIP_DEFLATED, zlib.crc32(data), len(data), _deflate(data)
            else:
                method, crc, size = info.compress_type, info.CRC, info.file_size
                packed = self._packed(info)
            time, date = _dos_time(info)
            sizes = (crc, len(packed), size, len(name))
            local = _LOCAL.pack(b"PK\3\4", _VERSION, flags, method, time, date, *sizes, 0)
            directory.append(
                _CENTRAL.pack(
                    b"PK\1\2", _VERSION, info.create_system, _VERSION, 0, flags, method, time, date, *sizes,
                    0, 0, 0, info.internal_attr, info.external_attr, offset,
                )
                + name
            )  # fmt: skip
            parts += (local, name, packed)
            offset += len(local) + len(name) + len(packed)
        if offset > _MAX_BYTES:
            raise DocumentError("the translated package has more than 4 GiB")
        number, length = len(directory), sum(map(len, directory))
        end = _END.pack(b"PK\5\6", 0, 0, number, number, length, offset, 0)
        return b"".join((*parts, *directory, end))

    def _packed(self, info: ZipInfo) -> bytes:
        """Returns a member as it is stored."""
        start = info.header_offset
        header = self._content[start : start + _LOCAL.size]
        if len(header) < _LOCAL.size or header[:4] != b"PK\3\4":
            raise DocumentError(f"member {info.filename}: damaged")
        fields = _LOCAL.unpack(header)
        first = start + _LOCAL.size + fields[-2] + fields[-1]
        packed = self._content[first : first + info.compress_size]
        if len(packed) != info.compress_size:
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


def _inflate(packed: bytes, size: int) -> bytes:
    """Unpacks at most one byte more than the directory states."""
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, size + 1)


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


def _written_name(info: ZipInfo) -> tuple[bytes, int]:
    """Returns the bytes of a name, and the flags of its member."""
    flags = info.flag_bits & ~_DESCRIPTOR
    return info.orig_filename.encode("utf-8" if flags & _UTF8 else "cp437"), flags


def _dos_time(info: ZipInfo) -> tuple[int, int]:
    year, month, day, hour, minute, second = info.date_time
    return hour << 11 | minute << 5 | second // 2, (year - 1980) << 9 | month << 5 | day
