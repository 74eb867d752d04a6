"""Reads safetensors files as NumPy arrays, also bfloat16, which NumPy lacks."""

from io import BufferedReader
from typing import Any

import numpy as np
from numpy.typing import NDArray

from export.imports.pickled import from_bfloat16

TYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}


def read_safetensors(file: BufferedReader) -> dict[str, NDArray[Any]]:
    """Returns the tensors by name.

    Raises:
        ModuleNotFoundError: if the library is not installed.
        Exception: of any type for a damaged file.
    """
    from safetensors import deserialize  # noqa: PLC0415 - only this format needs the library

    found = {}
    for name, tensor in deserialize(file.read()):  # type: ignore[no-untyped-call]
        kind, shape, data = tensor["dtype"], tensor["shape"], tensor["data"]
        if kind == "BF16":
            found[name] = from_bfloat16(np.frombuffer(data, np.uint16)).reshape(shape)
        elif kind in TYPES:
            found[name] = np.frombuffer(data, TYPES[kind]).reshape(shape)
        else:
            raise ValueError(f"{name}: type {kind}: expected one of {', '.join(TYPES)}")
    return found
