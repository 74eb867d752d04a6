"""The help of every command equals its snapshot."""

import argparse
import os
import sys

import pytest

from dragoman import COMMANDS, main
from tests.snapshots.snapshot import check, check_names
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
        # The length of the folder would otherwise decide where lines break.
        return expand(self, action).replace(str(ROOT), "ROOT")

    monkeypatch.setattr(argparse.HelpFormatter, "_expand_help", expand_without_root)


def help_of(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """Returns what a command prints on `--help`."""
    monkeypatch.setattr(sys, "argv", ["dragoman", *command, "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    return capsys.readouterr().out


def snapshot_name(command: str) -> str:
    """Returns the file name of a command's snapshot."""
    return f"{command.replace(' ', '-')}.txt"


def test_the_list_of_commands_equals_its_snapshot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check("help/dragoman.txt", help_of(monkeypatch, capsys))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_equals_its_snapshot(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check(f"help/{snapshot_name(command)}", help_of(monkeypatch, capsys, *command.split()))


def test_every_snapshot_of_help_belongs_to_a_command() -> None:
    check_names("help", {"dragoman.txt", *map(snapshot_name, COMMANDS)})
