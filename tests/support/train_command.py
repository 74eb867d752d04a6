"""Short runs of `dragoman train`, and its refusals."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragoman import command_line
from dragoman.model.run import RunFolder
from tests.support.cases import cases
from tests.support.commands import refusal_of

RECIPE: dict[str, Any] = cases(__file__)
MAX_STEPS: int = RECIPE["training"]["max_steps"]


def start(arguments: list[str], out: Path, *more: str) -> RunFolder:
    command_line.run("train", [*arguments, "--out", str(out), *more])
    return RunFolder(out)


def refusal(start_it: Callable[[], object]) -> str:
    """Returns the single line with which a command exits."""
    return refusal_of("train", start_it)
