"""A command line repeats its command; versions are those of installed libraries."""

import importlib.metadata
from pathlib import Path

import pytest
from pydantic import BaseModel, SecretStr

from dragoman.model.provenance import Provenance, command_line


class Shape(BaseModel):
    """A section."""

    width: int = 1
    depth: int = 2


class Command(BaseModel):
    """Options of every kind."""

    runs: list[Path] = []
    out: Path
    sentence: tuple[int, ...] = (7,)
    shape: Shape = Shape(width=5)
    stable: bool = False
    scores: bool = True
    api_key: SecretStr | None = None


OUT = Path("o")


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (Command(runs=[Path("a b"), Path("c")], out=OUT, sentence=(1, 2)), "'a b' c --out o --sentence 1 --sentence 2"),
        (Command(out=OUT, stable=True, scores=False), "--out o --stable --no-scores"),
        (Command(out=OUT, api_key=SecretStr("secret")), "--out o"),
        (Command(out=OUT, shape=Shape(width=5, depth=3)), "--out o --shape.depth 3"),
    ],
    ids=["lists", "flags have no value", "secrets are left out", "sections"],
)
def test_options_come_back_as_they_are_typed(command: Command, line: str) -> None:
    assert command_line("bench all", command, positional="runs") == f"dragoman bench all {line}"


def test_versions_of_what_is_not_installed_are_left_out() -> None:
    provenance = Provenance.now("dragoman x", ("numpy", "no-such-library"), "threads: 1")
    assert provenance.versions.endswith(f", numpy {importlib.metadata.version('numpy')}")
    assert provenance.machine.endswith(", threads: 1")
