"""Arrays that stay in their file: each use reads one anew, so memory holds only those in use."""

import math
import os
import struct
import weakref
from collections.abc import Callable, Iterator, Mapping
from io import BufferedReader
from mmap import ACCESS_READ, ALLOCATIONGRANULARITY, mmap
from typing import Any, Literal, Self
from zipfile import ZIP_STORED, ZipFile

import numpy as np
from numpy.typing import DTypeLike, NDArray

READ_BYTES = 1 << 20
# The header of a member of a zip archive has the sizes of name and extra field at one offset, the name at another.
SIZES_OFFSET, NAME_OFFSET = 26, 30


class StoredArray:
    """An array by its shape and type; `read` returns its values, which take memory as long as they are in use."""

    def __init__(self, shape: tuple[int, ...], dtype: DTypeLike, read: Callable[[], NDArray[Any]]) -> None:
        self.shape = shape
        self.dtype = np.dtype(dtype)
        self.read = read

    @classmethod
    def of(cls, array: NDArray[Any]) -> Self:
        """Returns an array in memory as a stored one."""
        return cls(array.shape, array.dtype, lambda: array)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of values."""
        return math.prod(self.shape)

    @property
    def T(self) -> "StoredArray":  # noqa: N802 - as NumPy names it
        """The transposed array."""
        return self.then(self.shape[::-1], np.transpose)

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Lets functions of NumPy read the values."""
        return np.array(self.read(), dtype, copy=copy)

    def then(
        self, shape: tuple[int, ...], change: Callable[[NDArray[Any]], NDArray[Any]], dtype: DTypeLike | None = None
    ) -> "StoredArray":
        """Returns an array that changes the values at each use."""
        return StoredArray(shape, self.dtype if dtype is None else dtype, lambda: change(self.read()))

    def floats(self) -> "StoredArray":
        """Returns the values as float32."""
        if self.dtype == np.float32:
            return self
        return self.then(self.shape, lambda values: values.astype(np.float32), np.float32)


class StoredParameters(Mapping[str, NDArray[np.float32]]):
    """The parameters of a model by name; each use reads one."""

    def __init__(self, stored: Mapping[str, StoredArray | NDArray[np.float32]]) -> None:
        self._stored = stored

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        found = self._stored[name]
        return found.read() if isinstance(found, StoredArray) else found

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


class ArrayFile:
    """A file of arrays. It stays open as long as one of its arrays exists."""

    def __init__(self, file: BufferedReader) -> None:
        self._descriptor = os.dup(file.fileno())
        weakref.finalize(self, os.close, self._descriptor)
        self.size_bytes = os.fstat(self._descriptor).st_size

    def array(
        self, offset: int, dtype: DTypeLike, shape: tuple[int, ...], order: Literal["C", "F"] = "C"
    ) -> StoredArray:
        """Returns the array at an offset; raises ValueError if it does not fit into the file."""
        kind = np.dtype(dtype)
        if any(size < 0 for size in shape) or offset + math.prod(shape) * kind.itemsize > self.size_bytes:
            raise ValueError(f"expected {shape} of {kind} at {offset} of {self.size_bytes} bytes")
        return StoredArray(shape, kind, lambda: self.values(offset, kind, math.prod(shape)).reshape(shape, order=order))

    def values(self, offset: int, kind: np.dtype[Any], count: int) -> NDArray[Any]:
        """Maps values into memory; their pages are free again when the array is."""
        if not count:
            return np.zeros(0, kind)
        before = offset % ALLOCATIONGRANULARITY
        pages = mmap(self._descriptor, before + count * kind.itemsize, access=ACCESS_READ, offset=offset - before)
        return np.frombuffer(pages, kind, count, before)


def from_bfloat16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Returns values whose upper 16 bits are given, as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def member_offset(file: BufferedReader, archive: ZipFile, name: str) -> int:
    """Returns where a member of an archive begins in the file; raises ValueError if the member is compressed."""
    member = archive.getinfo(name)
    if member.compress_type != ZIP_STORED:
        raise ValueError(f"{name}: compressed, expected a stored member")
    with archive.open(member) as content:
        while content.read(READ_BYTES):  # compares the checksum at the end
            pass
    file.seek(member.header_offset + SIZES_OFFSET)
    return member.header_offset + NAME_OFFSET + int(sum(struct.unpack("<HH", file.read(4))))
