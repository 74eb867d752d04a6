"""Converts the files of a model to a bundle in the cache, by content."""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.export.imports.marian_folder import SUFFIXES, is_marian_folder
from dragoman.export.imports.shards import is_index, read_index
from dragoman.hub.names import HubError
from dragoman.hub.repository import NEEDED, OPTIONAL, SUPPORTED, Kind, kind_of
from dragoman.hub.store import Store
from dragoman.serve.bundle.bundle import MANIFEST_FILE, Bundle, BundleError
from dragoman.serve.bundle.files import sha256_of
from dragoman.serve.bundle.manifest import Precision

if TYPE_CHECKING:
    from dragoman.export.source_model import Exportable

# A change of the conversion that changes bundles gets a new number: cached bundles of the old one are not used.
CONVERSION = 3
PRECISION: Precision = "int8"
PACKAGE_SUFFIX = ".argosmodel"
KEY_CHARACTERS = 32


@dataclass(frozen=True, slots=True)
class Languages:
    """Languages that the files of a model do not state; None: those of the files."""

    source: str | None = None
    target: str | None = None

    @classmethod
    def named_in(cls, name: str) -> "Languages":
        """Returns the last two neighboring parts of a name that may be languages, as in `opus-mt-en-de-ct2`."""
        parts = [part if re.fullmatch(r"[a-z]{2,3}", part) else None for part in re.split(r"[-_.]", name)]
        found = [cls(*pair) for pair in pairwise(parts) if None not in pair]
        return found[-1] if found else cls()


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of a model on this machine.

    Attributes:
        path: folder, or Argos package.
        model: name for the bundle.
        languages: those that the user gave.
    """

    path: Path
    model: str
    languages: Languages

    @property
    def kind(self) -> Kind:
        """What the files are; raises HubError if they are no model that can be converted."""
        if self.path.is_file() or (self.path / "metadata.json").is_file() or (self.path / "model.bin").is_file():
            return "ctranslate2"
        if (self.path / "config.json").is_file():
            return kind_of({path.name for path in self.path.iterdir()})
        if is_marian_folder(self.path):
            return "marian"
        raise HubError(f"{self.path}: has no config.json, .npz or .bin file: {SUPPORTED}")

    @property
    def size_bytes(self) -> int:
        """Size of the files that the conversion reads; raises HubError if they are no model."""
        return sum(path.stat().st_size for path in _files(self, self.kind))


def convert(store: Store, source: ModelFiles) -> tuple[str, Bundle]:
    """Returns the key and the bundle of a model, converted now or before; raises HubError if it cannot be converted."""
    kind = source.kind
    key = _key(source, kind)
    with store.lock(key):
        folder = store.bundle(key)
        if not (folder / MANIFEST_FILE).is_file():
            store.clear_bundle(key)
            _write(source, kind, folder)
        try:
            return key, Bundle.open(folder)
        except BundleError:  # of another format version, or damaged
            store.clear_bundle(key)
            _write(source, kind, folder)
            return key, Bundle.open(folder)


def _key(source: ModelFiles, kind: Kind) -> str:
    digest = hashlib.sha256(repr((CONVERSION, PRECISION, kind, source.model, source.languages)).encode())
    for path in _files(source, kind):
        digest.update(f"{path.name} {sha256_of(path)}\n".encode())
    return digest.hexdigest()[:KEY_CHARACTERS]


def _files(source: ModelFiles, kind: Kind) -> Iterator[Path]:
    """Yields the files that the conversion may read."""
    if source.path.is_file():
        yield source.path
        return
    if (source.path / "metadata.json").is_file():
        yield from sorted(path for path in source.path.rglob("*") if path.is_file())
        return
    if kind == "marian" and is_marian_folder(source.path):
        yield from sorted(path for path in source.path.iterdir() if path.suffix in SUFFIXES)
        return
    names = sorted({*(name for group in NEEDED[kind] for name in group), *OPTIONAL[kind]})
    # SentencePiece models may be in the folder above that of a CTranslate2 model.
    folders = (source.path, source.path.parent) if kind == "ctranslate2" else (source.path,)
    for path in (folder / name for folder in folders for name in names):
        if path.is_file():
            yield path
            yield from _shards(path) if is_index(path.name) else ()


def _shards(index: Path) -> list[Path]:
    """Returns the shards that exist; the import refuses an index of others."""
    try:
        return [index.with_name(name) for name in sorted(read_index(index)) if index.with_name(name).is_file()]
    except ValueError as error:
        raise HubError(f"{index}: {error}") from error


def _write(source: ModelFiles, kind: Kind, folder: Path) -> None:
    from dragoman.export.imports.common import ImportedModelError  # noqa: PLC0415 - takes long to import
    from dragoman.export.imports.golden import golden_samples  # noqa: PLC0415
    from dragoman.export.make_bundle import BundleOptions, write_bundle  # noqa: PLC0415
    from dragoman.model.errors import RunError  # noqa: PLC0415

    print(f"{source.model}: converts to a bundle", flush=True)
    try:
        exportable = _read(source, kind)
        write_bundle(exportable, golden_samples(exportable), folder, BundleOptions(source.model, precision=PRECISION))
    except (ImportedModelError, RunError) as error:
        raise HubError(f"{source.model}: {error}") from error


def _read(source: ModelFiles, kind: Kind) -> "Exportable":
    from dragoman.export.imports.common import ImportOptions, UnnamedLanguageError  # noqa: PLC0415 - takes long to import
    from dragoman.export.imports.ctranslate2 import import_ctranslate2  # noqa: PLC0415
    from dragoman.export.imports.hugging_face import import_checkpoint  # noqa: PLC0415
    from dragoman.export.imports.marian_files import import_marian_files  # noqa: PLC0415

    read: Callable[[Path, ImportOptions], Exportable]
    if kind == "ctranslate2":
        read = import_ctranslate2
    else:
        read = import_marian_files if is_marian_folder(source.path) else import_checkpoint
    given = source.languages
    try:
        return read(source.path, ImportOptions(given.source, given.target))
    except UnnamedLanguageError:
        guessed = Languages.named_in(source.model)
        if given != Languages() or guessed == given:
            raise
    return read(source.path, ImportOptions(guessed.source, guessed.target))
