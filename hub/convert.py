"""Converts the files of a model to a bundle in the cache, by content."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.export.imports.marian_folder import SUFFIXES, is_marian_folder
from dragoman.export.imports.shards import is_index, read_index
from dragoman.hub.licenses import describe_license
from dragoman.hub.names import HubError, Languages
from dragoman.hub.progress import report
from dragoman.hub.repository import KINDS, SUPPORTED, Kind, kind_of
from dragoman.hub.store import Store
from dragoman.model.errors import UserError
from dragoman.serve.bundle.bundle import Bundle, BundleError
from dragoman.serve.bundle.files import sha256_of
from dragoman.serve.bundle.manifest import Precision

if TYPE_CHECKING:
    from dragoman.export.source_model import Exportable

# A change of the conversion that changes bundles gets a new number: cached bundles of the old one are not used.
CONVERSION = 5
PRECISION: Precision = "int8"
PACKAGE_SUFFIX = ".argosmodel"
KEY_CHARACTERS = 32
README_FILE = "README.md"
MADE_FROM = "Dragoman made this bundle of the model below. Its matrices are rounded to 8 bits."
MAX_LICENSE_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The files of a model: a folder or Argos package, the name for the bundle, and the user's languages.

    License and facts go into the bundle. They do not make another bundle of the same files.
    """

    path: Path
    model: str
    languages: Languages
    license: str | None = None
    facts: tuple[str, ...] = ()

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
        try:
            return key, Bundle.open(folder)
        except BundleError:  # missing, of another format version, or damaged
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
    names = sorted({*(name for group in KINDS[kind].groups for name in group), *KINDS[kind].optional})
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
    from dragoman.export.imports.golden import golden_samples  # noqa: PLC0415 - takes long to import
    from dragoman.export.make_bundle import BundleOptions, write_bundle  # noqa: PLC0415

    report(f"{source.model}: converts to a bundle")
    try:
        exportable = _read(source, kind)
        files = {README_FILE: _readme(source, kind).encode()}
        exportable = replace(exportable, files=files, license=(source.license or "")[:MAX_LICENSE_CHARACTERS])
        write_bundle(exportable, golden_samples(exportable), folder, BundleOptions(source.model, precision=PRECISION))
    except UserError as error:
        raise HubError(f"{source.model}: {error}") from error


def _readme(source: ModelFiles, kind: Kind) -> str:
    """Returns where the weights of a bundle come from, and their terms."""
    hashes = (f"- {path.name}: sha256 {sha256_of(path)}" for path in _files(source, kind))
    facts = (f"- {fact}" for fact in (describe_license(source.license), *source.facts))
    return "\n".join((f"# {source.model}\n", f"{MADE_FROM}\n", *facts, "\nOriginal files:\n", *hashes, ""))


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
