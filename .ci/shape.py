"""The limits that hold the shape of the repository, and what exceeds them. `make check` runs them with the figures."""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import Any, Protocol

MAX_PARAMETERS = 8
MAX_FUNCTION_LINES = 60
# Python files of a folder with subfolders, and of a folder without.
MAX_LOOSE_FILES = 15
MAX_FLAT_FILES = 20
MAX_README_CHARACTERS = 8000
# Files that a request passes from the handler of its route to the queue.
MAX_FILES_TO_QUEUE = 43
# Lines of Python and C++; generated code and CUDA do not count.
# Lower a limit when lines go, and never raise one.
MAX_LINES = {"Python": 74_000, "tests": 64_000, "C++": 9_500}
# What may exceed a limit, with the reason.
EXCEPTIONS = {
    "export/imports": "a reader of checkpoints is one to three files, and no reader needs another one",
    "serve/documents": "a format of documents is one to three files, and no format needs another one",
}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Source(Protocol):
    """A Python file: its path, its folder, and its syntax tree."""

    @property
    def path(self) -> str:
        """Relative to the repository."""

    @property
    def folder(self) -> str:
        """Of the path."""

    @property
    def tree(self) -> ast.Module:
        """Of the file."""


def excesses(code: Sequence[Source], figures: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each excess: where it is, the figure, and the limit.

    Args:
        code: Python files without tests and generated ones.
        figures: "lines" of each kind in `MAX_LINES`, "readme characters" and "files to queue".
    """
    found = [*_long_functions(code), *_full_folders(code), *_large_figures(figures)]
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


def _large_figures(figures: dict[str, Any]) -> Iterator[Found]:
    yield "README.md", "characters", figures["readme characters"], MAX_README_CHARACTERS
    yield "the path of a request", "files from handler to queue", figures["files to queue"], MAX_FILES_TO_QUEUE
    for kind, limit in MAX_LINES.items():
        yield kind, "lines", figures["lines"][kind], limit
