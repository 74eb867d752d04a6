"""The folder whose files an assistant may translate."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from dragoman.model.errors import UserError
from dragoman.serve.clients.file_plan import FilePlan


class FolderError(UserError):
    """A path that the tools may not use; the message names it."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder; None: no file may be used."""

    root: Path | None

    @classmethod
    def open(cls, path: Path | None) -> Self:
        """Returns a folder with its links resolved; raises FolderError if it is none."""
        if path is not None and not path.is_dir():
            raise FolderError(f"--root: {path}, expected a folder")
        return cls(None if path is None else Path(os.path.realpath(path)))

    def source(self, path: str) -> Path:
        """Returns the real path of a file below the folder; raises FolderError if it is none."""
        if self.root is None:
            raise FolderError("path: no file may be translated, expected the option --root of `dragoman mcp`")
        # No file has a null character in its name, and functions of paths do not take it.
        resolved = Path(os.path.realpath(self.root / path.replace("\0", "/")))
        if not resolved.is_relative_to(self.root) or not resolved.is_file():
            raise FolderError(f"path: {path!r}, expected a file below the folder of --root")
        return resolved

    def translation(self, source: Path, target_language: str) -> Path:
        """Returns where the translation of a file goes, next to it; raises FolderError if a file is there."""
        (path,) = FilePlan(target=target_language).find([source]).outputs.values()
        if os.path.lexists(path):
            raise FolderError(f"path: {path.name!r} exists, expected no file of this name")
        return path

    def write(self, path: Path, content: bytes) -> None:
        """Writes a file that does not exist; raises OSError if it exists meanwhile or cannot be written."""
        with path.open("xb") as file:
            file.write(content)

    def name_of(self, path: Path) -> str:
        """Returns the path of a file below the folder, as clients name it."""
        return str(path.relative_to(self.root or path))
