"""Reads `pytorch_model.bin` without PyTorch: tensors by name, in PyTorch's zip format and in its older one.

A pickle is a program. This interpreter has the few operations of a file of tensors, and calls nothing else:
dictionaries with text as keys, lists, tuples, numbers, and views of storages. Every other operation or name is refused.

Sources: torch/serialization.py and torch/_utils.py.
"""

import io
import math
import pickle
import re
import struct
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from io import BufferedReader
from mmap import ACCESS_READ, mmap
from os import SEEK_CUR
from typing import Any, Never

import numpy as np

from dragoman.export.imports.stored import ArrayFile, StoredArray, from_bfloat16, member_offset
from dragoman.tables import read_table

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
# Operations of a pickle, axes of a tensor, and arguments of its function, that no known checkpoint reaches.
MAX_OPERATIONS = 1_000_000
MAX_AXES = 8
MAX_ARGUMENTS = 8
# The operations of a file of tensors, as Python's unpickler names them.
OPERATIONS = re.compile(
    r"proto|frame|stop|mark|none|true|false|global|(short_)?binunicode8?|binfloat|binint[12]?|long[14]|tuple[123]?|"
    r"empty_(dictionary|list|tuple)|appends?|setitems?|(long_)?bin(put|get)|memoize|reduce|build|binpersid"
)
# What the unpickler raises.
DAMAGES = (AttributeError, EOFError, IndexError, KeyError, TypeError, ValueError, pickle.UnpicklingError, struct.error)
_BFLOAT16 = "bfloat16"
STORAGES: dict[str, str] = read_table(__file__, "types.yaml")["pytorch"]


class PickledError(Exception):
    """The file holds something else than dense tensors, or is damaged."""


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage that a tensor refers to: its key in the file, its type and its number of values."""

    key: str
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class View:
    """A tensor as a view of a storage."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_pickled(file: BufferedReader) -> dict[str, object]:
    """Returns the tensors of a checkpoint by name, and other values as they are.

    Raises:
        PickledError: if the file is damaged, or holds anything but tensors, numbers and text.
        Exception: of any type from the libraries for damaged or compressed archives.
    """
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            return _read_zip(file, archive)
    # A mapped file returns what it has for a stated length beyond its end.
    with mmap(file.fileno(), 0, access=ACCESS_READ) as mapped:
        return _read_legacy(file, mapped)


def _read_zip(file: BufferedReader, archive: zipfile.ZipFile) -> dict[str, object]:
    names = archive.namelist()
    roots = [name.removesuffix("data.pkl") for name in names if name.rpartition("/")[2] == "data.pkl"]
    if len(roots) != 1:
        raise PickledError("expected one data.pkl")
    root = roots[0]
    if f"{root}byteorder" in names and archive.read(f"{root}byteorder") != b"little":
        raise PickledError("byteorder: expected little")
    content = Interpreter(io.BytesIO(archive.read(f"{root}data.pkl"))).load()

    def offset(storage: Storage) -> int:
        name = f"{root}data/{storage.key}"
        _check_size(storage, archive.getinfo(name).file_size)
        return member_offset(file, archive, name)

    return _resolve(content, ArrayFile(file), offset)


def _read_legacy(file: BufferedReader, mapped: mmap) -> dict[str, object]:
    """Reads magic number, protocol, system, structure, keys of storages, and then each storage after its size."""
    magic, protocol, system, content, keys = (Interpreter(mapped).load() for _ in range(5))
    if (magic, protocol) != (MAGIC, PROTOCOL):
        raise PickledError("not a file of PyTorch")
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise PickledError("byte order: expected little endian")
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise PickledError("expected a list of the keys of storages")
    known = {view.storage.key: view.storage for view in _tensors(content).values() if isinstance(view, View)}
    offsets: dict[str, int] = {}
    for key in keys:
        if key not in known:
            raise PickledError(f"storage {key}: no tensor has it")
        size = int.from_bytes(mapped.read(8), "little")
        if size != known[key].size:
            raise PickledError(f"storage {key}: {size} values, expected {known[key].size}")
        offsets[key] = mapped.tell()
        size_bytes = size * _item_bytes(known[key].type)
        _check_size(known[key], min(size_bytes, len(mapped) - mapped.tell()))
        mapped.seek(size_bytes, SEEK_CUR)
    return _resolve(content, ArrayFile(file), lambda storage: offsets[storage.key])


def _tensors(content: object) -> dict[str, object]:
    if not isinstance(content, dict):
        raise PickledError("expected a dictionary of tensors")
    return content


def _resolve(content: object, file: ArrayFile, offset: Callable[[Storage], int]) -> dict[str, object]:
    storages: dict[str, tuple[Storage, int]] = {}
    found: dict[str, object] = {}
    for name, value in _tensors(content).items():
        if not isinstance(value, View):
            found[name] = value
            continue
        key = value.storage.key
        if key not in storages:
            storages[key] = value.storage, offset(value.storage)
        storage, start = storages[key]
        if storage != value.storage:
            raise PickledError(f"{name}: storage {key} has another type or size before")
        found[name] = _viewed(name, value, file, start)
    return found


def _item_bytes(kind: str) -> int:
    return 2 if kind == _BFLOAT16 else np.dtype(kind).itemsize


def _check_size(storage: Storage, size_bytes: int) -> None:
    if size_bytes != storage.size * _item_bytes(storage.type):
        raise PickledError(f"storage {storage.key}: {size_bytes} bytes, expected {storage.size} of {storage.type}")


def _viewed(name: str, view: View, file: ArrayFile, start: int) -> StoredArray:
    """Returns the tensor that a view is, of the values of its storage that it spans."""
    size, count = view.storage.size, math.prod(view.shape)
    spanned = 1 + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    # More values than the storage has would be repeated ones, whose copy may not fit into memory.
    if count > size or (count and view.offset + spanned > size):
        raise PickledError(f"{name}: reaches beyond its storage")
    is_bfloat16 = view.storage.type == _BFLOAT16
    kind = np.dtype(np.uint16 if is_bfloat16 else view.storage.type)
    values = file.array(start + view.offset * kind.itemsize, kind, (spanned if count else 0,))
    if is_bfloat16:
        values = values.then(values.shape, from_bfloat16, np.float32)
    steps = [stride * values.dtype.itemsize for stride in view.strides]
    return values.then(
        view.shape, lambda found: np.lib.stride_tricks.as_strided(found, view.shape, steps, writeable=False)
    )


class _Texts(dict[str, Any]):
    """A dictionary with text as keys: a nested tuple would take exponential time to hash."""

    def __init__(self) -> None:
        super().__init__()

    def __setitem__(self, key: object, value: object) -> None:
        if not isinstance(key, str):
            raise PickledError("refused key: expected text")
        super().__setitem__(key, value)


class Interpreter(pickle._Unpickler):  # noqa: SLF001 - the one in Python, whose operations can be chosen
    """Runs one pickle of a stream; what it makes refers to values of this module only."""

    stack: list[Any]

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self.dispatch = _Operations(_ALLOWED)  # type: ignore[misc]  # each pickle counts its own

    def load(self) -> object:
        """Returns the value of the pickle; raises PickledError if an operation is refused or does not fit."""
        try:
            return super().load()
        except DAMAGES as error:
            raise PickledError(f"damaged: {type(error).__name__}: {error}") from error

    def find_class(self, module: str, name: str) -> object:
        """Returns what stands for a name, and imports nothing."""
        if module == "torch" and name.endswith("Storage"):
            if name not in STORAGES:
                raise PickledError("refused storage: expected a type of PyTorch for real numbers")
            return STORAGES[name]
        if (module, name) not in FUNCTIONS:
            raise PickledError(f"refused name {module}.{name}: expected dense tensors")
        return FUNCTIONS[module, name]

    def persistent_load(self, identity: object) -> Storage:
        """Returns the storage of an identity."""
        return _storage(identity)

    def load_reduce(self) -> None:
        """Calls a function; raises PickledError if its arguments are not a tuple as short as those of tensors."""
        if not isinstance(self.stack[-1], tuple) or len(self.stack[-1]) > MAX_ARGUMENTS:
            raise PickledError("damaged: expected the arguments of a tensor")
        super().load_reduce()  # type: ignore[misc]  # it is private

    def load_empty_dictionary(self) -> None:
        """Makes a dictionary."""
        self.stack.append(_Texts())

    def load_build(self) -> None:
        """Drops the attributes of a dictionary, such as the versions of modules."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise PickledError("damaged: expected a dict")


class _Operations(dict[int, Callable[[Any], None]]):
    """The operations of one pickle by their codes; there are at most `MAX_OPERATIONS`."""

    left = MAX_OPERATIONS

    def __getitem__(self, code: int) -> Callable[[Any], None]:
        if not self.left:
            raise PickledError(f"damaged: no end in {MAX_OPERATIONS:,} operations")
        self.left -= 1
        return super().__getitem__(code)

    def __missing__(self, code: int) -> Never:
        raise PickledError(f"refused operation {code:#04x}")


_ALLOWED = {
    code: getattr(Interpreter, operation.__name__)
    for code, operation in pickle._Unpickler.dispatch.items()  # noqa: SLF001 - as above
    if OPERATIONS.fullmatch(operation.__name__.removeprefix("load_"))
}


def _parameter(view: object, *_: object) -> View:
    if not isinstance(view, View):
        raise PickledError("damaged: expected a tensor")
    return view


def _view(storage: object, offset: object, shape: object, strides: object, *_: object) -> View:
    if not isinstance(storage, Storage) or not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise PickledError("damaged: expected a storage, an offset, a shape and strides")
    if any(type(number) is not int or number < 0 for number in (offset, *shape, *strides)):
        raise PickledError("damaged: expected sizes from 0 on")
    if len(shape) != len(strides) or len(shape) > MAX_AXES:
        raise PickledError(f"damaged: expected as many sizes as strides, at most {MAX_AXES}")
    return View(storage, int(str(offset)), shape, strides)


def _storage(identity: object) -> Storage:
    """Returns a storage for ('storage', type, key, device, size)."""
    if not isinstance(identity, tuple) or len(identity) < 5 or identity[0] != "storage":  # noqa: PLR2004 - its parts
        raise PickledError("damaged: expected a storage")
    _, kind, key, _, size = identity[:5]
    if len(identity) > 5 and identity[5] is not None:  # noqa: PLR2004
        raise PickledError("refused storage: a view of another one")
    if kind not in STORAGES.values() or not isinstance(key, str) or type(size) is not int or size < 0:
        raise PickledError("damaged: expected the type, the key and the size of a storage")
    return Storage(key, str(kind), size)


# What a checkpoint may call.
FUNCTIONS: dict[tuple[str, str], Callable[..., object]] = {
    ("collections", "OrderedDict"): _Texts,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_tensor_v2"): _view,
}
