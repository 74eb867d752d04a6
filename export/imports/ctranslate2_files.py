"""Reads the files of a CTranslate2 model: model.bin, configuration, vocabularies, SentencePiece models, Argos packages.

model.bin is little-endian. A string is its length including a final zero byte, uint16, then the bytes.

    version  uint32                  6 is the newest
    from version 2 on: specification  string, revision  uint32
    count  uint32, then as many variables:
        name  string, rank  uint8, sizes  uint32 each
        from version 4 on: type  uint8 (index in `TYPES`), length in bytes  uint32
        before: item size in bytes  uint8, number of items  uint32
        content
    from version 3 on: count  uint32, then as many aliases: alias  string, name  string

Source: CTranslate2's python/ctranslate2/specs/model_spec.py. An Argos package is a zip archive, or its unpacked folder,
that contains a CTranslate2 model. Its sentence splitting is not used.
"""

import json
import math
import re
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from io import BufferedReader
from os import SEEK_CUR
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dragoman.export.imports.common import ImportedModelError, ImportOptions, check_pieces, read_fields, read_json
from dragoman.export.imports.stored import ArrayFile, StoredArray, from_bfloat16
from dragoman.model.errors import first_problem, reason_of
from dragoman.serve.bundle.files import open_file, read_file
from dragoman.serve.bundle.manifest import MAX_AXES
from dragoman.tables import read_table

OLDEST_VERSION, NEWEST_VERSION = 1, 6
FIRST_WITH_SPECIFICATION, FIRST_WITH_ALIASES, FIRST_WITH_TYPES = 2, 3, 4
TYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
# Versions without types: the item size determines the type.
TYPE_OF_ITEM_BYTES = {4: "float32", 2: "int16", 1: "int8"}

# Scale of matrices of 16-bit integers without one.
USUAL_INT16_SCALE = 1000.0

Variable = StoredArray | NDArray[Any]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model.bin, whose variables stay in the file; an alias is the same object as its variable."""

    version: int
    specification: str
    revision: int
    variables: dict[str, Variable]


def read_model_file(path: Path) -> ModelFile:
    """Reads a model.bin; raises OSError, or ImportedModelError if it is none, damaged, or of an unsupported version."""
    try:
        with open_file(path) as file:
            return _ModelFileParser(file).model_file()
    except _DamageError as error:
        raise ImportedModelError(f"{path}: not a CTranslate2 model: {error}") from error


def dequantized(path: Path, variables: dict[str, Variable]) -> dict[str, Variable]:
    """Returns the variables with float32 matrices, round(w * scale) / scale; raises ImportedModelError."""
    plain = {name: value for name, value in variables.items() if not name.endswith("/weight_scale") or value.ndim > 1}
    seen: dict[int, Variable] = {}  # by id: an alias stays the same object
    for name, value in plain.items():
        if value.dtype not in (np.int8, np.int16) or value.ndim == 0 or not name.endswith("/weight"):
            continue
        if id(value) not in seen:
            seen[id(value)] = _multiplied_out(path, name, value, variables.get(f"{name}_scale"))
        plain[name] = seen[id(value)]
    return plain


def _multiplied_out(path: Path, name: str, value: Variable, stored_scale: Variable | None) -> StoredArray:
    scale = None if stored_scale is None else np.asarray(stored_scale)
    if scale is None and value.dtype == np.int16:
        scale = np.array(USUAL_INT16_SCALE)
    if scale is None:
        raise ImportedModelError(f"{path}: {name}_scale: missing scale of {value.dtype} values")
    if scale.size not in (1, len(value)) or value.ndim != 2:  # noqa: PLR2004  a matrix
        raise ImportedModelError(f"{path}: {name}_scale: shape is {scale.shape}, expected 1 or {len(value)} values")
    if not (np.isfinite(scale) & (scale > 0)).all():
        raise ImportedModelError(f"{path}: {name}_scale: expected values above 0")
    divisors = scale.astype(np.float32).reshape(-1, 1)
    return StoredArray(value.shape, np.float32, lambda: np.divide(np.asarray(value), divisors, dtype=np.float32))


class _DamageError(Exception):
    """The bytes do not follow the format."""


class _ModelFileParser:
    """Parses a file, and skips the values of variables."""

    def __init__(self, file: BufferedReader) -> None:
        self._file = file
        self._stored = ArrayFile(file)
        self._left_bytes = self._stored.size_bytes

    def model_file(self) -> ModelFile:
        """Parses the whole file."""
        version = self._number("I")
        if not OLDEST_VERSION <= version <= NEWEST_VERSION:
            raise _DamageError(f"binary version is {version}, expected {OLDEST_VERSION} to {NEWEST_VERSION}")
        has_specification = version >= FIRST_WITH_SPECIFICATION
        specification, revision = (self._string(), self._number("I")) if has_specification else ("", 1)
        variables = dict(self._variable(version) for _ in range(self._number("I")))
        if version >= FIRST_WITH_ALIASES:
            for _ in range(self._number("I")):
                alias, name = self._string(), self._string()
                if name not in variables:
                    raise _DamageError(f"{alias} is an alias of {name}, which is missing")
                variables[alias] = variables[name]
                if f"{name}_scale" in variables:
                    variables[f"{alias}_scale"] = variables[f"{name}_scale"]
        if self._left_bytes:
            raise _DamageError(f"{self._left_bytes} bytes after the end")
        return ModelFile(version, specification, revision, variables)

    def _variable(self, version: int) -> tuple[str, Variable]:
        name = self._string()
        shape = tuple(self._number("I") for _ in range(self._number("B")))
        if len(shape) > MAX_AXES or 0 in shape:
            raise _DamageError(f"{name}: shape is {shape}, expected at most {MAX_AXES} sizes above 0")
        kind = self._number("B")
        kinds = dict(enumerate(TYPES)) if version >= FIRST_WITH_TYPES else TYPE_OF_ITEM_BYTES
        if kind not in kinds:
            raise _DamageError(f"{name}: type is {kind}, expected one of {', '.join(map(str, kinds))}")
        # NumPy has no bfloat16, which is the upper half of a float32.
        dtype = np.dtype(np.uint16 if kinds[kind] == "bfloat16" else kinds[kind]).newbyteorder("<")
        length = self._number("I") * (1 if version >= FIRST_WITH_TYPES else kind)
        if length != math.prod(shape) * dtype.itemsize:
            raise _DamageError(f"{name}: {length} bytes, expected {math.prod(shape) * dtype.itemsize}")
        self._count(length)
        value = self._stored.array(self._file.tell(), dtype, shape)
        self._file.seek(length, SEEK_CUR)
        return name, value.then(shape, from_bfloat16, np.float32) if kinds[kind] == "bfloat16" else value

    def _string(self) -> str:
        content = self._take(self._number("H"))
        if not content.endswith(b"\0"):
            raise _DamageError("a name lacks its final zero byte")
        try:
            return content[:-1].decode()
        except UnicodeDecodeError as error:
            raise _DamageError("a name is not UTF-8") from error

    def _number(self, kind: str) -> int:
        (number,) = struct.unpack(f"<{kind}", self._take(struct.calcsize(f"<{kind}")))
        return int(number)

    def _take(self, length: int) -> bytes:
        self._count(length)
        return self._file.read(length)

    def _count(self, length: int) -> None:
        if length > self._left_bytes:
            raise _DamageError(f"ends after {self._stored.size_bytes} bytes, expected more")
        self._left_bytes -= length


METADATA_FILE = "metadata.json"
MODEL_FOLDER = "model"


@dataclass(frozen=True, slots=True)
class OpenPackage:
    """The folder of a CTranslate2 model, metadata of its Argos package, and the token that starts every translation."""

    model: Path
    source: str | None = None
    target: str | None = None
    target_prefix: str = ""

    def complete(self, options: ImportOptions) -> ImportOptions:
        """Returns the options, with the languages of the package where they have none."""
        source, target = options.source_language or self.source, options.target_language or self.target
        return replace(options, source_language=source, target_language=target)


@contextmanager
def open_package(path: Path, options: ImportOptions) -> Iterator[OpenPackage]:
    """Yields the model of a folder or an Argos package, one of several by the options, or raises ImportedModelError."""
    if path.is_dir():
        yield _describe(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield _describe(_extract(path, Path(folder), options))


def _extract(path: Path, folder: Path, options: ImportOptions) -> Path:
    """Unpacks the members of an archive that are read, and returns the folder that contains the metadata."""
    try:
        with open_file(path) as file, zipfile.ZipFile(file) as archive:
            root = _find_root(path, archive, options)
            members = [item for item in archive.infolist() if item.filename in {root + name for name in MEMBERS}]
            _check_sizes(path, members)
            for member in members:
                target = folder / member.filename.removeprefix(root)
                target.parent.mkdir(exist_ok=True)
                with archive.open(member) as source, target.open("wb") as unpacked:
                    shutil.copyfileobj(source, unpacked)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ImportedModelError(
            f"{path}: expected a model folder or an Argos package (zip archive): {reason_of(error)}"
        ) from error
    return folder


def _find_root(path: Path, archive: zipfile.ZipFile, options: ImportOptions) -> str:
    """Returns the folder of the metadata in an archive: empty, or as in `en_de/`. The options select one of several."""
    pattern = re.compile(rf"([^/]+/)?{re.escape(METADATA_FILE)}")
    found = sorted({name for name in archive.namelist() if pattern.fullmatch(name)})
    if not found:
        raise ImportedModelError(f"{path}: expected an Argos package with {METADATA_FILE}")
    if len(found) > 1 and METADATA_FILE not in found:
        languages = {name: _languages_of(path, archive, name) for name in found}
        wanted = options.source_language, options.target_language
        found = [name for name, own in languages.items() if all(map(_fits, wanted, own))]
        if len(found) != 1:
            listed = ", ".join("-".join(map(str, own)) for own in languages.values())
            given = "-".join(item or "?" for item in wanted)
            raise ImportedModelError(f"{path}: source-language, target-language: {given}: expected one of {listed}")
    return min(found, key=len).removesuffix(METADATA_FILE)


def _fits(wanted: str | None, own: object) -> bool:
    return wanted is None or wanted == own


def _languages_of(path: Path, archive: zipfile.ZipFile, name: str) -> tuple[object, object]:
    if archive.getinfo(name).file_size > UNCHECKED_BYTES:
        raise ImportedModelError(f"{path}: {name}: expected at most {UNCHECKED_BYTES} bytes")
    try:
        metadata = json.loads(archive.read(name))
    except (ValueError, RecursionError) as error:
        raise ImportedModelError(f"{path}: {name}: not JSON: {error}") from error
    if not isinstance(metadata, dict):
        raise ImportedModelError(f"{path}: {name}: expected a JSON object")
    return metadata.get("from_code"), metadata.get("to_code")


def _check_sizes(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    """Checks what the members unpack to; `zipfile` unpacks no member beyond its stated size."""
    if len({member.filename for member in members}) < len(members):
        raise ImportedModelError(f"{path}: expected each member once")
    for member in members:
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ImportedModelError(f"{path}: {member.filename}: expected a stored or deflated member")
    size_bytes = sum(member.file_size for member in members)
    max_bytes = max(UNCHECKED_BYTES, MAX_RATIO * path.stat().st_size)
    if size_bytes > max_bytes:
        raise ImportedModelError(f"{path}: unpacks to {size_bytes} bytes, expected at most {max_bytes}")


def _describe(folder: Path) -> OpenPackage:
    path = folder / METADATA_FILE
    if not path.exists():
        return OpenPackage(folder)
    metadata = read_fields(path)
    if metadata.get("type", "translate") != "translate":
        raise ImportedModelError(f"{path}: type: {metadata['type']}: expected translate")
    source, target = metadata.get("from_code"), metadata.get("to_code")
    prefix = metadata.get("target_prefix", "")
    if not isinstance(source, str) or not isinstance(target, str):
        raise ImportedModelError(f"{path}: from_code, to_code: {source}, {target}: expected two languages")
    if not isinstance(prefix, str):
        raise ImportedModelError(f"{path}: target_prefix: {prefix}: expected a token")
    return OpenPackage(folder / MODEL_FOLDER, source, target, prefix)


MODEL_FILE = "model.bin"
CONFIG_FILE = "config.json"
BPE_FILE = "bpe.model"
VOCABULARIES = [
    f"{side}_vocabulary.{end}" for side in ("shared", "source", "target", "source_1") for end in ("json", "txt")
]
# First binary version with config.json; earlier ones store its fields as variables.
FIRST_WITH_CONFIG = 6
TOKENIZERS: list[list[str]] = read_table(__file__, "ctranslate2.yaml")["tokenizers"]
# The members of a package that are read.
IN_FOLDER = (BPE_FILE, *{name for pair in TOKENIZERS for name in pair})
_OF_MODEL = (*IN_FOLDER, MODEL_FILE, CONFIG_FILE, *VOCABULARIES)
MEMBERS = (METADATA_FILE, *IN_FOLDER, *(f"{MODEL_FOLDER}/{name}" for name in _OF_MODEL))
# Trained weights compress to a half at best; small packages may be of zeros.
MAX_RATIO = 10
UNCHECKED_BYTES = 16 << 20


class Config(BaseModel):
    """The fields of config.json that affect what a model reads and writes."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    unk: str = Field("<unk>", alias="unk_token")
    bos: str = Field("<s>", alias="bos_token")
    eos: str = Field("</s>", alias="eos_token")
    start: str | None = Field("<s>", alias="decoder_start_token")
    add_source_bos: bool = False
    add_source_eos: bool = False
    layer_norm_epsilon: float | None = Field(None, gt=0)


@dataclass(frozen=True, slots=True)
class Vocabularies:
    """The pieces of both vocabularies in id order, and their files."""

    source_path: Path
    source: tuple[str, ...]
    target_path: Path
    target: tuple[str, ...]


def read_config(folder: Path, file: ModelFile) -> Config:
    """Reads the configuration of a model; raises ImportedModelError naming the field and the expected value."""
    path = folder / CONFIG_FILE
    fields = read_fields(path) if file.version >= FIRST_WITH_CONFIG else _fields_of_variables(file.variables)
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        raise ImportedModelError(f"{path}: {first_problem(error)}") from error


def read_vocabularies(folder: Path, unknown: str) -> Vocabularies:
    """Reads one shared vocabulary or one per side; raises ImportedModelError if there is none.

    As CTranslate2, appends the unknown piece to a vocabulary without it.
    """
    if (folder / "source_1_vocabulary.json").exists() or (folder / "source_1_vocabulary.txt").exists():
        raise ImportedModelError(f"{folder}: source_1_vocabulary: several source features, expected one")
    shared = _find_vocabulary(folder, "shared")
    source = shared or _find_vocabulary(folder, "source")
    target = shared or _find_vocabulary(folder, "target")
    if source is None or target is None:
        raise ImportedModelError(
            f"{folder}: expected shared_vocabulary, or source_vocabulary and target_vocabulary, as .json or .txt"
        )
    pieces = [_read_vocabulary(path) for path in (source, target)]
    source_pieces, target_pieces = (side if unknown in side else (*side, unknown) for side in pieces)
    return Vocabularies(source, source_pieces, target, target_pieces)


def _find_vocabulary(folder: Path, name: str) -> Path | None:
    paths = (folder / f"{name}_vocabulary.{suffix}" for suffix in ("json", "txt"))
    return next((path for path in paths if path.exists()), None)


def _read_vocabulary(path: Path) -> tuple[str, ...]:
    if path.suffix == ".json":
        return check_pieces(path, read_json(path))
    try:
        text = read_file(path).decode()
    except UnicodeDecodeError as error:
        raise ImportedModelError(f"{path}: not UTF-8") from error
    # `splitlines` would be wrong: a piece may be a Unicode line separator.
    return check_pieces(path, [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")])


def _fields_of_variables(variables: dict[str, Variable]) -> dict[str, object]:
    """Returns the configuration of a model without config.json."""
    texts = ("unk_token", "bos_token", "eos_token")
    fields: dict[str, object] = {
        name: np.asarray(variables[name]).tobytes().decode(errors="replace") for name in texts if name in variables
    }

    def flag(name: str, *, usual: bool) -> bool:
        return bool(np.asarray(variables[name]).any()) if name in variables else usual

    fields["add_source_bos"] = flag("with_source_bos", usual=False)
    fields["add_source_eos"] = flag("with_source_eos", usual=False)
    usual = Config()
    begin = {"bos_token": usual.bos, "eos_token": usual.eos, **fields}
    start = begin["bos_token" if flag("with_target_bos", usual=True) else "eos_token"]
    return {**fields, "decoder_start_token": None if flag("user_decoder_start_tokens", usual=False) else start}
