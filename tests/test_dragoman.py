"""The front door: it explains every command, names what is wrong with an argument, and imports no more than it runs."""

import re
import subprocess
import sys
from collections.abc import Iterator
from typing import get_args, get_origin

import pytest
from pydantic import BaseModel

import dragoman
from tests.support.paths import ROOT

HEAVY = ("torch", "onnxruntime", "lightning", "onnx", "fastapi", "uvicorn")


def option_names(settings: type[BaseModel], prefix: str = "") -> list[str]:
    """Returns the options of a command as one types them, those of its sections included."""
    names = []
    for name, field in settings.model_fields.items():
        option = f"{prefix}{name.replace('_', '-')}"
        sections = [
            kind for kind in flatten(field.annotation) if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        for section in sections:
            names += option_names(section, f"{option}.")
        if not sections:
            names.append(option)
    return names


def flatten(annotation: object) -> Iterator[object]:
    """Yields an annotation and all that it is made of: a section may be one of several.

    Sections by name are one option, since their names are not known.
    """
    yield annotation
    for argument in () if get_origin(annotation) is dict else get_args(annotation):
        yield from flatten(argument)


def call(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> object:
    """Runs the front door with a command line and returns the exit code, or the message in its place."""
    monkeypatch.setattr(sys, "argv", ["dragoman", *arguments])
    with pytest.raises(SystemExit) as ended:
        dragoman.main()
    return ended.value.code


@pytest.mark.parametrize("name", dragoman.COMMANDS)
def test_help_tells_every_option(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *name.split(), "--help") == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: dragoman {name} ")
    for option in option_names(dragoman.load_command(name)):
        assert re.search(rf"^  (-\w, )?(--{option}[ ,\n]|{option.upper()}( |$))", text, re.MULTILINE), option


@pytest.mark.parametrize("name", dragoman.COMMANDS)
def test_every_option_is_described(name: str) -> None:
    command = dragoman.load_command(name)
    assert command.__doc__
    assert [field for field, info in command.model_fields.items() if not info.description] == []


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_front_door_lists_the_commands(
    flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, flag) == 0
    text = capsys.readouterr().out
    for name, (_, summary) in dragoman.COMMANDS.items():
        assert f"  {name} " in text
        assert summary in text


@pytest.mark.parametrize("arguments", [["bench"], ["bench", "--help"], ["bench", "grahps"], ["graphs"]])
def test_half_a_name_is_wrong_usage(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *arguments) == 2
    assert capsys.readouterr().err.endswith(f"dragoman: {arguments[0]!r} is not a command\n")


def test_no_command_is_wrong_usage(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(monkeypatch) == 2
    assert "usage: dragoman COMMAND" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["tarin", "", "Train", "--version"])
def test_an_unknown_command_is_wrong_usage(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, name) == 2
    captured = capsys.readouterr()
    assert captured.err.endswith(f"dragoman: {name!r} is not a command\n")
    assert captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["serve", "bundle", "--slots", "0"], "dragoman serve: --slots: "),
        (["serve", "bundle", "--http-port", "many"], "dragoman serve: --http-port: "),
        (["train", "--out", "run", "--data", "x", "--model.d-model", "-8"], "dragoman train: --model.d-model: "),
        (["train", "--out", "run", "--data", "x", "--model.heads", "7"], "dragoman train: --model: "),
        (["train", "--out", "run", "--data", "x", "--training.precision", "8"], "--training.precision: "),
        (["train", "--data", "x"], "dragoman train: --out: Field required"),
        (["verify", "b", "--run", "r", "--data", "d", "--minimum-identical", "2"], "--minimum-identical: "),
        (["evaluate", "a", "--data", "d", "--minimum-exact", "most"], "dragoman evaluate: --minimum-exact: "),
    ],
)
def test_a_wrong_value_is_told_with_its_option(
    arguments: list[str], problem: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, *arguments) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert "Traceback" not in error


def test_a_given_value_is_repeated(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    call(monkeypatch, "serve", "bundle", "--slots", "many")
    assert "(given: 'many')" in capsys.readouterr().err


def test_every_problem_is_told_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    call(monkeypatch, "serve", "bundle", "--slots", "0", "--engines", "0")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ")[1] for line in lines] == ["--slots", "--engines"]


@pytest.mark.parametrize("option", ["--color", "--model.color"])
def test_an_unknown_option_is_wrong_usage(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(monkeypatch, "train", "--data", "x", "--out", "run", option, "green") == 2
    assert option in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["serve", "--help"], ["translate", "--help"]])
def test_what_is_not_run_is_not_imported(arguments: list[str]) -> None:
    """Neither by the front door nor by a command that only explains itself."""
    program = f"""
import sys
import dragoman
sys.argv = ["dragoman", *{arguments}]
try:
    dragoman.main()
except SystemExit:
    pass
print([name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stderr.splitlines()[-1] == "[]"


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "dragoman", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout == f"{dragoman.usage()}\n"
