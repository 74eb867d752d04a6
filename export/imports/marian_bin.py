"""Reads Marian's binary files (.bin), as the models of Firefox Translations have them.

A file has a version, headers, names, shapes, padding and data, all little-endian. A matrix of 8 or 16 bits is stored
transposed, [outputs, inputs], under its shape [inputs, outputs]; embeddings are not. A float32 follows its integers:
integers divided by it are the weights. The file also has the scales of activations, which are not read: Dragoman
computes them.

Sources: Marian's src/common/binary.cpp; browsermt's src/tensors/cpu/integer_common.h.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.export.imports.common import ImportedModelError
from dragoman.export.imports.stored import StoredArray

VERSION = 1
# Marian's codes: the class of a type plus the size of an element in bytes.
PLAIN: dict[int, str] = {0x0101: "i1", 0x0102: "<i2", 0x0104: "<i4", 0x0402: "<f2", 0x0404: "<f4", 0x0408: "<f8"}
QUANTIZED: dict[int, str] = {0x4101: "i1", 0x4102: "<i2"}
EMBEDDINGS = "Wemb"
ACTIVATION_SCALE = "_QuantMultA"
MAX_TENSORS, MAX_AXES, MAX_NAME_BYTES = 100_000, 8, 1000
MATRIX = 2


class _Header(NamedTuple):
    name_bytes: int
    kind: int
    axes: int
    data_bytes: int


def read_marian_bin(path: Path, content: bytes) -> dict[str, object]:
    """Returns the tensors of a file by name, quantized ones as float32 at each use, or raises ImportedModelError."""
    reader = _ByteReader(path, content)
    (version, count) = reader.integers(2)
    if version != VERSION or count > MAX_TENSORS:
        raise ImportedModelError(
            f"{path}: version {version}, {count} tensors: expected Marian's binary version {VERSION}"
        )
    headers = [_Header(*reader.integers(4)) for _ in range(count)]
    names = [reader.take(header.name_bytes, MAX_NAME_BYTES).rstrip(b"\0").decode() for header in headers]
    shapes = [reader.shape(header.axes) for header in headers]
    (padding,) = reader.integers(1)
    reader.take(padding, len(content))
    return dict(_tensors(reader, headers, names, shapes))


def _tensors(
    reader: "_ByteReader", headers: list[_Header], names: list[str], shapes: list[tuple[int, ...]]
) -> Iterator[tuple[str, object]]:
    for header, name, shape in zip(headers, names, shapes, strict=True):
        data = reader.take(header.data_bytes, header.data_bytes)
        if not name.endswith(ACTIVATION_SCALE):
            yield name, reader.tensor(name, header.kind, shape, data)


class _ByteReader:
    """Takes parts of the content in order."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._path = path
        self._content = memoryview(content)
        self._offset = 0

    def take(self, size: int, most: int) -> bytes:
        """Takes bytes; raises ImportedModelError if there are more than `most`, or fewer are left."""
        end = self._offset + size
        if size > most or end > len(self._content):
            raise ImportedModelError(f"{self._path}: truncated or damaged: expected {size} bytes at {self._offset}")
        taken = bytes(self._content[self._offset : end])
        self._offset = end
        return taken

    def integers(self, count: int) -> list[int]:
        """Takes integers of 64 bits."""
        return [int(item) for item in np.frombuffer(self.take(8 * count, 8 * count), "<u8")]

    def shape(self, axes: int) -> tuple[int, ...]:
        """Takes a shape; raises ImportedModelError if a size is not above 0."""
        sizes = tuple(int(axis) for axis in np.frombuffer(self.take(4 * axes, 4 * MAX_AXES), "<i4"))
        if any(size <= 0 for size in sizes):
            raise ImportedModelError(f"{self._path}: shape {sizes}: expected sizes above 0")
        return sizes

    def tensor(self, name: str, kind: int, shape: tuple[int, ...], data: bytes) -> StoredArray | NDArray[np.generic]:
        """Returns a tensor of its data, which may have padding."""
        stored, count = PLAIN.get(kind) or QUANTIZED.get(kind), math.prod(shape)
        if stored is None:
            raise ImportedModelError(f"{self._path}: {name}: type {kind:#06x}: expected float32, intgemm8 or intgemm16")
        size = count * np.dtype(stored).itemsize
        if size + (4 if kind in QUANTIZED else 0) > len(data):
            raise ImportedModelError(f"{self._path}: {name}: {len(data)} bytes, expected {shape}")
        values: NDArray[np.generic] = np.frombuffer(data, stored, count)
        return self._scaled(name, values, data[size : size + 4], shape) if kind in QUANTIZED else values.reshape(shape)

    def _scaled(self, name: str, values: NDArray[np.generic], factor: bytes, shape: tuple[int, ...]) -> StoredArray:
        (multiplier,) = np.frombuffer(factor, "<f4")
        if not multiplier > 0 or len(shape) != MATRIX:
            raise ImportedModelError(f"{self._path}: {name}: multiplier {multiplier}: expected a matrix and above 0")
        stored = values.reshape(shape if EMBEDDINGS in name else shape[::-1])
        weights = StoredArray(stored.shape, np.float32, lambda: np.divide(stored, multiplier, dtype=np.float32))
        return weights if EMBEDDINGS in name else weights.T
