"""Reads CTranslate2's model.bin: the name of the model's specification, and variables by name.

Little-endian throughout. Strings have their length, with a zero byte at the end, as uint16 before them.

    version  uint32                  6 today; this reads from 2 on
    specification  string, revision  uint32
    count  uint32, then so many variables:
        name  string, rank  uint8, sizes  uint32 each
        from version 4 on: type  uint8 (index in `TYPES`), length in bytes  uint32
        before: item size in bytes  uint8, number of items  uint32
        content
    from version 3 on: count  uint32, then so many aliases: alias  string, name  string

Source: CTranslate2's python/ctranslate2/specs/model_spec.py, which writes it. Knows no model. Called by
`export.imports.from_ctranslate2`.
"""

import math
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.imports.common import ImportedModelError, read_bytes

OLDEST_VERSION, NEWEST_VERSION = 2, 6
FIRST_WITH_ALIASES, FIRST_WITH_TYPES = 3, 4
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
# Before there were types, the size of an item said it all.
TYPE_OF_ITEM_BYTES = {4: "float32", 2: "int16", 1: "int8"}

Variable = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """What a model.bin holds.

    Attributes:
        version: of the binary format.
        specification: which kind of model it is.
        revision: of the specification.
        variables: by name, aliases included; an alias is the very array that it stands for.
    """

    version: int
    specification: str
    revision: int
    variables: dict[str, Variable]


def read_model_file(path: Path) -> ModelFile:
    """Reads a model.bin.

    Raises:
        ImportedModelError: if it is none, is damaged, or is of a version that is not known here.
    """
    content = read_bytes(path)
    try:
        return _Reader(content).model_file()
    except _DamageError as error:
        raise ImportedModelError(f"{path}: not a CTranslate2 model: {error}") from error


def dequantised(path: Path, variables: dict[str, Variable]) -> dict[str, Variable]:
    """Returns variables with quantised matrices multiplied out, and without their scales.

    A quantised value is round(w * scale); int8 has a scale for each row, int16 one for the whole matrix.

    Raises:
        ImportedModelError: if a scale is missing or does not fit.
    """
    plain = {name: value for name, value in variables.items() if not name.endswith("_scale") or value.ndim > 1}
    seen: dict[int, Variable] = {}  # an alias stays the very array that it stands for
    for name, value in plain.items():
        if value.dtype not in (np.int8, np.int16) or value.ndim == 0 or not name.endswith("/weight"):
            continue
        if id(value) not in seen:
            seen[id(value)] = _multiplied_out(path, name, value, variables.get(f"{name}_scale"))
        plain[name] = seen[id(value)]
    return plain


def _multiplied_out(path: Path, name: str, value: Variable, scale: Variable | None) -> Variable:
    if scale is None:
        raise ImportedModelError(f"{path}: {name}_scale: is missing, expected the scale of {value.dtype} values")
    if scale.size not in (1, len(value)) or value.ndim != 2:  # noqa: PLR2004  a matrix
        raise ImportedModelError(f"{path}: {name}_scale: shape is {scale.shape}, expected 1 or {len(value)} of them")
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ImportedModelError(f"{path}: {name}_scale: expected numbers above 0")
    return np.asarray(value.astype(np.float32) / scale.astype(np.float32).reshape(-1, 1), np.float32)


class _DamageError(Exception):
    """The bytes are not what the format says."""


class _Reader:
    """A position in the bytes of a file, which moves on with everything that is read."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    def model_file(self) -> ModelFile:
        """Reads everything."""
        version = self._number("I")
        if not OLDEST_VERSION <= version <= NEWEST_VERSION:
            raise _DamageError(f"binary version is {version}, expected {OLDEST_VERSION} to {NEWEST_VERSION}")
        specification, revision = self._string(), self._number("I")
        variables = dict(self._variable(version) for _ in range(self._number("I")))
        if version >= FIRST_WITH_ALIASES:
            for _ in range(self._number("I")):
                alias, name = self._string(), self._string()
                if name not in variables:
                    raise _DamageError(f"{alias} stands for {name}, which is missing")
                variables[alias] = variables[name]
                if f"{name}_scale" in variables:
                    variables[f"{alias}_scale"] = variables[f"{name}_scale"]
        if self._position != len(self._content):
            raise _DamageError(f"{len(self._content) - self._position} bytes are left over")
        return ModelFile(version, specification, revision, variables)

    def _variable(self, version: int) -> tuple[str, Variable]:
        name = self._string()
        shape = tuple(self._number("I") for _ in range(self._number("B")))
        kind = self._number("B")
        kinds = dict(enumerate(TYPES)) if version >= FIRST_WITH_TYPES else TYPE_OF_ITEM_BYTES
        if kind not in kinds:
            raise _DamageError(f"{name}: type is {kind}, expected one of {', '.join(map(str, kinds))}")
        # NumPy has no bfloat16: the upper halves of float32 numbers.
        dtype = np.dtype(np.uint16 if kinds[kind] == "bfloat16" else kinds[kind]).newbyteorder("<")
        length = self._number("I") * (1 if version >= FIRST_WITH_TYPES else kind)
        if length != math.prod(shape) * dtype.itemsize:
            raise _DamageError(f"{name}: {length} bytes, expected {math.prod(shape) * dtype.itemsize}")
        value = np.frombuffer(self._take(length), dtype).reshape(shape)
        if kinds[kind] == "bfloat16":
            value = (value.astype(np.uint32) << 16).view(np.float32)
        return name, value

    def _string(self) -> str:
        content = self._take(self._number("H"))
        if not content.endswith(b"\0"):
            raise _DamageError("a name does not end")
        try:
            return content[:-1].decode()
        except UnicodeDecodeError as error:
            raise _DamageError("a name is not UTF-8") from error

    def _number(self, kind: str) -> int:
        (number,) = struct.unpack(f"<{kind}", self._take(struct.calcsize(f"<{kind}")))
        return int(number)

    def _take(self, length: int) -> bytes:
        taken = self._content[self._position : self._position + length]
        if len(taken) < length:
            raise _DamageError(f"ends after {len(self._content)} bytes, expected more")
        self._position += length
        return taken
