"""Reads Marian's binary files (.bin), as the models of Firefox Translations have them.

A file has a version, headers, names, shapes, padding and data, all little-endian. A matrix of 8 or 16 bits is stored
transposed, [outputs, inputs], under its shape [inputs, outputs]; embeddings are not. A float32 follows its integers:
integers divided by it are the weights. The file also has the scales of activations, which are not read: Dragoman
computes them.

Sources: Marian's src/common/binary.cpp; browsermt's src/tensors/cpu/integer_common.h.
"""

import math
from pathlib import Path
from typing import Any

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


def read_marian_bin(path: Path, content: bytes) -> dict[str, object]:
    """Returns the tensors of a file by name, quantized ones as float32 at each use, or raises ImportedModelError."""
    reader = _Reader(path, content)
    version, count = reader.take("<u8", 2).tolist()
    if version != VERSION or count > MAX_TENSORS:
        raise ImportedModelError(
            f"{path}: version {version}, {count} tensors: expected Marian's binary version {VERSION}"
        )
    # The length of the name, the code of the type, the number of axes, and the length of the data.
    headers = reader.take("<u8", 4 * count).reshape(-1, 4).tolist()
    names = [
        reader.take("u1", name_bytes, MAX_NAME_BYTES).tobytes().rstrip(b"\0").decode() for name_bytes, *_ in headers
    ]
    shapes = [tuple(reader.take("<i4", axes, MAX_AXES).tolist()) for _, _, axes, _ in headers]
    reader.take("u1", reader.take("<u8", 1).item())  # padding
    found: dict[str, object] = {}
    for (_, kind, _, data_bytes), name, shape in zip(headers, names, shapes, strict=True):
        data = reader.take("u1", data_bytes)
        if not name.endswith(ACTIVATION_SCALE):
            found[name] = _tensor(f"{path}: {name}", kind, shape, data, is_transposed=EMBEDDINGS not in name)
    return found


class _Reader:
    """Takes numbers of the content in order."""

    def __init__(self, path: Path, content: bytes) -> None:
        self._path = path
        self._content = content
        self._offset = 0

    def take(self, kind: str, count: int, most: float = math.inf) -> NDArray[Any]:
        """Takes numbers of a type; raises ImportedModelError if there are more than `most`, or fewer are left."""
        start, size_bytes = self._offset, count * np.dtype(kind).itemsize
        self._offset += size_bytes
        if count > most or self._offset > len(self._content):
            raise ImportedModelError(f"{self._path}: truncated or damaged: expected {size_bytes} bytes at {start}")
        return np.frombuffer(self._content, kind, count, start)


def _tensor(
    name: str, kind: int, shape: tuple[int, ...], data: NDArray[np.uint8], *, is_transposed: bool
) -> StoredArray | NDArray[Any]:
    """Returns a tensor of its data, which may have padding; `name` has the path of the file."""
    if any(size <= 0 for size in shape):
        raise ImportedModelError(f"{name}: shape {shape}: expected sizes above 0")
    stored, count = PLAIN.get(kind) or QUANTIZED.get(kind), math.prod(shape)
    if stored is None:
        raise ImportedModelError(f"{name}: type {kind:#06x}: expected float32, intgemm8 or intgemm16")
    size = count * np.dtype(stored).itemsize
    if size + (4 if kind in QUANTIZED else 0) > len(data):
        raise ImportedModelError(f"{name}: {len(data)} bytes, expected {shape}")
    values = data[:size].view(stored)
    if kind in PLAIN:
        return values.reshape(shape)
    multiplier = data[size : size + 4].view("<f4")[0]
    if not multiplier > 0 or len(shape) != MATRIX:
        raise ImportedModelError(f"{name}: multiplier {multiplier}: expected a matrix and above 0")
    integers = values.reshape(shape[::-1] if is_transposed else shape)
    weights = StoredArray(integers.shape, np.float32, lambda: np.divide(integers, multiplier, dtype=np.float32))
    return weights.T if is_transposed else weights
