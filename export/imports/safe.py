"""Reads safetensors files: the size of the header, uint64, the header in JSON, and the tensors without a gap.

Source: https://github.com/huggingface/safetensors, section "Format".
"""

import math
from io import BufferedReader

import numpy as np
from pydantic import BaseModel, Field, TypeAdapter

from dragoman.export.imports.stored import ArrayFile, StoredArray, from_bfloat16
from dragoman.serve.bundle.manifest import MAX_AXES
from dragoman.tables import read_table

SIZE_BYTES = 8
# The library has the same limit.
MAX_HEADER_BYTES = 100_000_000
BFLOAT16 = "BF16"
TYPES: dict[str, str] = read_table(__file__, "types.yaml")["safetensors"]


class _Entry(BaseModel):
    """A tensor in the header; its offsets count from the end of the header."""

    dtype: str
    shape: tuple[int, ...] = Field(max_length=MAX_AXES)
    data_offsets: tuple[int, int]


# A dictionary of texts is metadata.
_HEADER = TypeAdapter(dict[str, _Entry | dict[str, str]])


def read_safetensors(file: BufferedReader) -> dict[str, StoredArray]:
    """Returns the tensors by name; raises ValueError if the file is damaged, or a type is not one of `TYPES`."""
    stored = ArrayFile(file)
    header_bytes = int.from_bytes(file.read(SIZE_BYTES), "little")
    start = SIZE_BYTES + header_bytes
    if header_bytes > MAX_HEADER_BYTES or start > stored.size_bytes:
        raise ValueError(f"damaged: a header of {header_bytes} bytes in a file of {stored.size_bytes}")
    header = _HEADER.validate_json(file.read(header_bytes))
    entries = {name: entry for name, entry in header.items() if isinstance(entry, _Entry)}
    found, end = {}, 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        if entry.dtype not in TYPES:
            raise ValueError(f"{name}: type {entry.dtype}: expected one of {', '.join(TYPES)}")
        first, last = entry.data_offsets
        kind = np.dtype(TYPES[entry.dtype])
        if first != end or last - first != math.prod(entry.shape) * kind.itemsize:
            raise ValueError(f"damaged: {name}: bytes {first} to {last}: expected {entry.shape} from {end} on")
        end = last
        tensor = stored.array(start + first, kind, entry.shape)
        found[name] = tensor.then(entry.shape, from_bfloat16, np.float32) if entry.dtype == BFLOAT16 else tensor
    if start + end != stored.size_bytes:
        raise ValueError(f"damaged: {stored.size_bytes} bytes, expected {start + end}")
    return found
