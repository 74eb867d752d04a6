"""The files that `dragoman translate` translates, and the paths of their translations."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple, NoReturn

from dragoman.model.errors import UsageError
from dragoman.serve.documents.document import translated_suffix
from dragoman.serve.host.files import FileError

# Names of translated files next to their sources, and in a folder of their own.
NEXT_TO_SOURCE, IN_FOLDER = "{stem}.{target}{suffix}", "{stem}{suffix}"


class DocumentFileError(FileError):
    """A file that is not translated; the message has its path."""


class Files(NamedTuple):
    """The path of the translation of each file, and the files below folders whose format is unknown."""

    outputs: dict[Path, Path]
    unknown: list[Path]


@dataclass(frozen=True, slots=True)
class FilePlan:
    """The choice of files and their names.

    Attributes:
        out: folder of the translations; None: each is next to its source.
        include, exclude: patterns of paths below a folder, in which `*` also matches `/`.
        name: pattern of the names of translations; empty: NEXT_TO_SOURCE or IN_FOLDER.
        source, target: languages, for names.
    """

    out: Path | None = None
    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    name: str = ""
    source: str = ""
    target: str = ""

    def find(self, paths: Sequence[Path]) -> Files:
        """Returns the files, and those below folders.

        Raises:
            UsageError: if a folder has no folder for its translations, or the name of one cannot be created.
            DocumentFileError: if two files have the same path, or it is that of a source.
        """
        found, unknown = list[tuple[Path, Path]](), list[Path]()
        for path in paths:
            for file, parent in self._files(path):
                if file == path or _is_known(file):
                    found.append((file, parent))
                else:
                    unknown.append(file)
        # Path.resolve fails at links in a circle; reading or writing such a file names it.
        sources, taken = {os.path.realpath(file) for file, _ in found}, set[str]()
        outputs = dict[Path, Path]()
        for file, parent in found:
            path = outputs[file] = parent / self._translated_name(file)
            if (resolved := os.path.realpath(path)) in sources or resolved in taken:
                raise DocumentFileError(f"{file}: its translation would overwrite {path}")
            taken.add(resolved)
        return Files(outputs, unknown)

    def _files(self, path: Path) -> Iterator[tuple[Path, Path]]:
        """Yields the file of a path, or those of a folder, each with the folder of its translation."""
        if not path.is_dir():
            yield path, self.out or path.parent
            return
        out, real_out = self.out, os.path.realpath(self.out or path)
        if out is None or real_out == os.path.realpath(path):
            raise UsageError(f"{path}: expected --out with another folder")
        for root, folders, names in os.walk(path, onerror=_fail):
            parent = Path(root)
            below = parent.relative_to(path)
            visible = (name for name in sorted(folders) if not name.startswith("."))
            # The translations of an earlier call are no sources.
            folders[:] = [name for name in visible if os.path.realpath(parent / name) != real_out]
            for name in sorted(names):
                file = parent / name
                # A reader would wait at a pipe. A broken link fails by its name.
                if self._is_wanted(below / name) and (file.is_file() or file.is_symlink()):
                    yield file, out / below

    def _is_wanted(self, path: Path) -> bool:
        text = path.as_posix()
        included, excluded = (
            any(fnmatchcase(text, it) for it in patterns) for patterns in (self.include, self.exclude)
        )
        return not path.name.startswith(".") and included and not excluded

    def _translated_name(self, file: Path) -> str:
        pattern = self.name or (NEXT_TO_SOURCE if self.out is None else IN_FOLDER)
        if "{target}" in pattern and not self.target:
            raise UsageError("--target-language: expected one for the names of translations, or --out")
        fields = {
            "stem": file.stem,
            "suffix": translated_suffix(file.name),
            "source": self.source,
            "target": self.target,
        }
        try:
            name = pattern.format_map(fields)
        except (LookupError, ValueError, AttributeError, TypeError) as error:
            raise UsageError(f"--name: {pattern!r}, expected only the fields {', '.join(fields)}") from error
        if name in ("", ".", "..") or "/" in name:
            raise UsageError(f"--name: {pattern!r} gives {name!r}, expected the name of a file")
        return name


def _is_known(file: Path) -> bool:
    from dragoman.serve.documents.formats import FORMATS  # noqa: PLC0415 - few need all parsers

    return file.suffix.lower() in FORMATS


def _fail(error: OSError) -> NoReturn:
    raise error
