"""The help of every command equals its snapshot."""

import argparse
import os
import re
import runpy
import sys

import pytest

from dragoman.command_line import COMMANDS, main
from tests.snapshots.snapshot import DATA, check, check_names
from tests.support.paths import ROOT

COLUMNS = 100


@pytest.fixture(autouse=True)
def fixed_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the help independent of the terminal, the environment and the folder of the repository."""
    for name in [name for name in os.environ if name.startswith("DRAGOMAN_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    expand = argparse.HelpFormatter._expand_help

    def expand_without_root(self: argparse.HelpFormatter, action: argparse.Action) -> str:
        # Otherwise the length of the folder would change line breaks.
        return expand(self, action).replace(str(ROOT), "ROOT")

    monkeypatch.setattr(argparse.HelpFormatter, "_expand_help", expand_without_root)


def help_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *command: str) -> str:
    monkeypatch.setattr(sys, "argv", ["dragoman", *command, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return capsys.readouterr().out


def snapshot_name(command: str) -> str:
    return f"{command.replace(' ', '-')}.txt"


def test_the_commands_equal_their_snapshot(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    check("help/dragoman.txt", help_of(monkeypatch, capsys))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_equals_its_snapshot(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(f"help/{snapshot_name(command)}", help_of(monkeypatch, capsys, *command.split()))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_no_python_type_and_fits_its_columns(command: str) -> None:
    text = (DATA / "help" / snapshot_name(command)).read_text(encoding="utf-8")
    assert re.findall(r"^  -.* (?:int|float|str|Path|SecretStr|tuple|dict|None)\b", text, re.MULTILINE) == []
    assert "(default: None)" not in text
    assert max(map(len, text.splitlines())) <= COLUMNS


def test_the_completions_of_shells_have_the_present_commands() -> None:
    for path, text in runpy.run_path(str(ROOT / ".ci/completion.py"))["files"]():
        assert path.read_text(encoding="utf-8") == text, "run `make tables` and commit"


def test_every_snapshot_of_help_belongs_to_a_command() -> None:
    check_names("help", {"dragoman.txt", *map(snapshot_name, COMMANDS)})
