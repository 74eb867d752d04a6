"""Opens a package of Argos Translate: a zip archive, or the folder that was in it, with a CTranslate2 model inside.

Argos Translate also cuts paragraphs into sentences, for which packages hold more; that is left alone. Called by
`export.imports.from_ctranslate2`.
"""

import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from export.imports.common import ImportedModelError, read_fields

METADATA_FILE = "metadata.json"
MODEL_FOLDER = "model"
# Of anything larger than this, the archive would be no model.
LARGEST_BYTES = 16 * 2**30


@dataclass(frozen=True, slots=True)
class OpenPackage:
    """Where the model is, and what a package says of it.

    Attributes:
        model: the folder of the CTranslate2 model.
        source: language of the sources; None if this is no package.
        target: language of the translations.
    """

    model: Path
    source: str | None = None
    target: str | None = None


@contextmanager
def open_package(path: Path) -> Iterator[OpenPackage]:
    """Yields the model of a package, or of the folder that is no package but the model itself.

    Raises:
        ImportedModelError: if it is a package that we cannot use.
    """
    if path.is_dir():
        yield _describe(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        yield _describe(_extract(path, Path(folder)))


def _extract(path: Path, folder: Path) -> Path:
    """Unpacks an archive; returns the folder that holds the metadata."""
    try:
        with zipfile.ZipFile(path) as archive:
            size_bytes = sum(member.file_size for member in archive.infolist())
            if size_bytes > LARGEST_BYTES:
                raise ImportedModelError(f"{path}: unpacks to {size_bytes} bytes, expected at most {LARGEST_BYTES}")
            archive.extractall(folder)
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError) as error:
        raise ImportedModelError(f"{path}: expected a folder or an Argos package, a zip archive: {error}") from error
    found = sorted(folder.glob(METADATA_FILE)) + sorted(folder.glob(f"*/{METADATA_FILE}"))
    if not found:
        raise ImportedModelError(f"{path}: holds no {METADATA_FILE}, expected an Argos package")
    return found[0].parent


def _describe(folder: Path) -> OpenPackage:
    path = folder / METADATA_FILE
    if not path.exists():
        return OpenPackage(folder)
    metadata = read_fields(path)
    for field, expected in (("type", "translate"), ("target_prefix", "")):
        if metadata.get(field, expected) != expected:
            raise ImportedModelError(f"{path}: {field}: {metadata[field]}: expected {expected or 'none'}")
    source, target = metadata.get("from_code"), metadata.get("to_code")
    if not isinstance(source, str) or not isinstance(target, str):
        raise ImportedModelError(f"{path}: from_code, to_code: {source}, {target}: expected a language each")
    return OpenPackage(folder / MODEL_FOLDER, source, target)
