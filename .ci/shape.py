"""The limits that hold the shape of the repository, and what exceeds them. `make check` runs them with the figures."""

import ast
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MAX_PARAMETERS = 8
MAX_FUNCTION_LINES = 60
# Python files of a folder with subfolders, and of a folder without.
MAX_LOOSE_FILES = 15
MAX_FLAT_FILES = 20
MAX_README_CHARACTERS = 8000
# Files that a request passes from the handler of its route to the queue.
MAX_FILES_TO_QUEUE = 22
# Lines of Python and C++; generated code and CUDA do not count.
# Lower a limit when lines go, and never raise one.
MAX_LINES = {"Python": 74_000, "tests": 64_000, "C++": 9_500}
# What may exceed a limit, with the reason.
EXCEPTIONS = {
    "export/imports": "a reader of checkpoints is one to three files, and no reader needs another one",
    "serve/documents": "a format of documents is one to three files, and no format needs another one",
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source(NamedTuple):
    """A tracked Python file."""

    path: str
    folder: str
    text: str
    tree: ast.Module


class Sources(NamedTuple):
    """The tracked Python files by kind, without generated ones."""

    code: list[Source]
    tests: list[Source]
    checks: list[Source]

    @classmethod
    def read(cls) -> "Sources":
        """Returns every file that exists; the checks are those of this folder."""
        sources = cls([], [], [])
        for path, text in read_tracked("*.py").items():
            if "_pb2" not in path:
                kind = {"tests": sources.tests, ".ci": sources.checks}.get(PurePath(path).parts[0], sources.code)
                kind.append(Source(path, str(PurePath(path).parent), text, ast.parse(text)))
        return sources

    @property
    def lines(self) -> dict[str, int]:
        """The lines of each kind in `MAX_LINES`."""
        cpp = {path: text for path, text in read_tracked("*.cpp", "*.hpp").items() if not path.startswith("tests/")}
        return {
            "Python": count_lines(self.code),
            "tests": count_lines(self.tests),
            "C++": sum(text.count("\n") for path, text in cpp.items() if "cuda" not in path),
        }


def read_tracked(*patterns: str) -> dict[str, str]:
    """Returns the texts of the tracked files that exist, by path."""
    listed = subprocess.check_output(["git", "ls-files", *patterns], cwd=ROOT, text=True)  # noqa: S607 - the user's git
    return {path: (ROOT / path).read_text("utf-8") for path in listed.splitlines() if (ROOT / path).exists()}


def count_lines(sources: Sequence[Source]) -> int:
    """Returns the lines of all sources."""
    return sum(source.text.count("\n") for source in sources)


def count_readme_characters() -> int:
    """Returns the length of the README."""
    return len((ROOT / "README.md").read_text("utf-8"))


def excesses(sources: Sources, files_to_queue: int) -> Iterator[str]:
    """Yields a line for each excess: where it is, the figure, and the limit."""
    found = [
        *_long_functions(sources.code),
        *_full_folders(sources.code),
        ("README.md", "characters", count_readme_characters(), MAX_README_CHARACTERS),
        ("the path of a request", "files from handler to queue", files_to_queue, MAX_FILES_TO_QUEUE),
        *((kind, "lines", lines, MAX_LINES[kind]) for kind, lines in sources.lines.items()),
    ]
    for name, what, figure, limit in found:
        if figure > limit and name not in EXCEPTIONS:
            yield f"{name}: {figure} {what}, expected at most {limit}"
    known = {name for name, _, figure, limit in found if figure > limit}
    yield from (f"{name}: within its limits, expected no exception" for name in EXCEPTIONS if name not in known)


Found = tuple[str, str, int, int]


def _long_functions(code: Sequence[Source]) -> Iterator[Found]:
    for source in code:
        for node in ast.walk(source.tree):
            if isinstance(node, FUNCTIONS):
                name = f"{source.path}:{node.name}"
                yield name, "lines", (node.end_lineno or 0) - node.lineno + 1, MAX_FUNCTION_LINES
                yield name, "parameters", _parameters(node.args), MAX_PARAMETERS


def _parameters(arguments: ast.arguments) -> int:
    """Returns the number of parameters besides `self` and `cls`."""
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return sum(argument.arg not in ("self", "cls") for argument in named)


def _full_folders(code: Sequence[Source]) -> Iterator[Found]:
    counts = Counter(source.folder for source in code if PurePath(source.path).name != "__init__.py")
    parents = {folder.rpartition("/")[0] for folder in counts}
    for folder, count in counts.items():
        yield folder, "files", count, MAX_LOOSE_FILES if folder in parents else MAX_FLAT_FILES
