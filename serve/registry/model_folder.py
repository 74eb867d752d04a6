"""The folder that is served: one bundle, or a folder of bundles, each named as its model is.

Tells what lies there now, and by the hash of its manifest whether a bundle is another one than before. Opens no bundle.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

from serve.bundle.bundle import MANIFEST_FILE, BundleError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
# The name of a lone bundle whose manifest does not tell one; opening it will say what is wrong.
_UNNAMED = "model"


@dataclass(frozen=True, slots=True)
class FoundBundle:
    """A bundle as it lies there.

    Attributes:
        name: of the model.
        path: its folder.
        manifest_sha256: differs if anything in the bundle does, since the manifest holds the hash of every other file.
    """

    name: str
    path: Path
    manifest_sha256: str


class ModelFolder:
    """What is served."""

    def __init__(self, path: Path) -> None:
        """Keeps the path and looks whether it is a bundle, whose model then keeps its name whatever replaces it."""
        self._path = path
        self._lone_name = _read_name(path / MANIFEST_FILE) if (path / MANIFEST_FILE).is_file() else None

    def find(self) -> tuple[FoundBundle, ...]:
        """Returns the bundles that there are, at least one, in the order of their names.

        A subfolder without a manifest is none, nor is one whose name begins with a dot.

        Raises:
            BundleError: if there is none, or a name is not fit for a model.
        """
        if self._lone_name is not None:
            return (_find(self._lone_name, self._path),)
        if not self._path.is_dir():
            raise BundleError(f"{self._path}: no such folder, expected a bundle made by `dragoman export`")
        found = tuple(
            _find(_check_name(path), path)
            for path in sorted(self._path.iterdir())
            if (path / MANIFEST_FILE).is_file() and not path.name.startswith(".")
        )
        if not found:
            raise BundleError(
                f"{self._path}: neither {MANIFEST_FILE} nor a folder that holds one: expected a bundle made by "
                "`dragoman export`, or a folder of bundles"
            )
        return found


def _check_name(path: Path) -> str:
    if not _NAME.fullmatch(path.name):
        raise BundleError(f"{path}: expected 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-' as the name of a model")
    return path.name


def _find(name: str, path: Path) -> FoundBundle:
    try:
        manifest = (path / MANIFEST_FILE).read_bytes()
    except OSError as error:
        raise BundleError(f"{path / MANIFEST_FILE}: {error.strerror}") from error
    return FoundBundle(name, path, hashlib.sha256(manifest).hexdigest())


def _read_name(manifest: Path) -> str:
    try:
        name = json.loads(manifest.read_bytes())["name"]
    except (OSError, ValueError, TypeError, LookupError):
        return _UNNAMED
    return name if isinstance(name, str) else _UNNAMED
