"""A command line repeats its command; versions are those of installed libraries."""

import importlib.metadata
from pathlib import Path

from pydantic import BaseModel, SecretStr

from model.provenance import Provenance, command_line


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


def test_options_come_back_as_they_are_typed() -> None:
    command = Command(runs=[Path("a b"), Path("c")], out=Path("o"), sentence=(1, 2))
    line = "dragoman bench all 'a b' c --out o --sentence 1 --sentence 2"
    assert command_line("bench all", command, positional="runs") == line


def test_a_flag_has_no_value() -> None:
    assert (
        command_line("x", Command(out=Path("o"), stable=True, scores=False))
        == "dragoman x --out o --stable --no-scores"
    )


def test_a_secret_is_left_out() -> None:
    assert command_line("x", Command(out=Path("o"), api_key=SecretStr("secret"))) == "dragoman x --out o"


def test_an_option_of_a_section_has_the_name_of_the_section() -> None:
    assert (
        command_line("x", Command(out=Path("o"), shape=Shape(width=5, depth=3))) == "dragoman x --out o --shape.depth 3"
    )


def test_versions_of_what_is_not_installed_are_left_out() -> None:
    provenance = Provenance.now("dragoman x", ("numpy", "no-such-library"), "threads: 1")
    assert provenance.versions.endswith(f", numpy {importlib.metadata.version('numpy')}")
    assert provenance.machine.endswith(", threads: 1")


def test_versions_of_other_environments_follow_their_names() -> None:
    provenance = Provenance.now("dragoman x", (), "threads: 1", {"other": {"numpy": "1.0", "torch": "2.0"}})
    assert provenance.versions.endswith("; other: numpy 1.0, torch 2.0")
