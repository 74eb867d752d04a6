"""The command line describes every command, names invalid arguments, and imports only what it runs."""

import errno
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import get_args, get_origin

import pytest
from pydantic import BaseModel

import dragoman
from dragoman import command_line
from dragoman.serve.clients.aio import AsyncTranslationClient
from dragoman.serve.clients.client import TranslationClient
from dragoman.serve.commands import run
from tests.support.cases import cases
from tests.support.paths import ROOT

CASES = cases(__file__)

HEAVY = ("torch", "onnxruntime", "lightning", "onnx", "fastapi", "httptools", "dragoman.serve.app")


def option_names(settings: type[BaseModel], prefix: str = "") -> list[str]:
    """Returns the options of a command as typed, with those of its sections."""
    names = []
    for name, field in settings.model_fields.items():
        option = f"{prefix}{name.replace('_', '-')}"
        sections = [cls for cls in flatten(field.annotation) if isinstance(cls, type) and issubclass(cls, BaseModel)]
        for section in sections:
            names += option_names(section, f"{option}.")
        if not sections:
            names.append(option)
    return names


def flatten(annotation: object) -> Iterator[object]:
    """Yields an annotation and its parts: a section may be one of several models. A mapping by name is one option."""
    yield annotation
    for argument in () if get_origin(annotation) is dict else get_args(annotation):
        yield from flatten(argument)


# Runs the command line; returns the exit code or message, standard output and standard error.
Call = Callable[..., tuple[object, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["dragoman", *arguments])
        with pytest.raises(SystemExit) as ended:
            command_line.main()
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_help_lists_every_option(name: str, call: Call) -> None:
    code, text, _ = call(*name.split(), "--help")
    assert code == 0
    assert text.startswith(f"usage: dragoman {name} ")
    command = command_line.load_command(name)
    shortcuts = command.model_config.get("cli_shortcuts") or {}
    for option in option_names(command):
        # A shortcut of a dotted name stands for it.
        shortcut = shortcuts.get(option, option) if "." in option else option
        names = {option, shortcut} if isinstance(shortcut, str) else {option, *shortcut}
        flags = "|".join(map(re.escape, names))
        assert re.search(rf"^  (--({flags})[ ,\n]|{option.upper()}( |$))", text, re.MULTILINE), option


@pytest.mark.parametrize("name", command_line.COMMANDS)
def test_every_option_is_described_and_every_group_begins_with_one(name: str) -> None:
    command = command_line.load_command(name)
    assert command.__doc__
    assert [field for field, info in command.model_fields.items() if not info.description] == []
    for cls in command.__mro__:
        assert set(vars(cls).get("HELP_GROUPS", {})) <= command.model_fields.keys()


def test_no_command_is_wrong_usage(call: Call) -> None:
    code, text, _ = call()
    assert (code, "usage: dragoman COMMAND" in text) == (2, True)
    assert call("-h") == (0, text, "")


@pytest.mark.parametrize("line", ["self-test", "chaos --help", "graphs", "tarin", "", "Train", "--versions"])
def test_an_unknown_name_or_a_part_of_one_is_wrong_usage(line: str, call: Call) -> None:
    name, *arguments = line.split(" ")
    code, text, error = call(name, *arguments)
    assert (code, text) == (2, "")
    (problem,) = error.splitlines()
    assert problem.startswith(f"dragoman: {name!r} is not a command, ")


def test_the_version_is_that_of_the_distribution(call: Call) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert call("--version") == (0, f"dragoman {project['version']}\n", "")


@pytest.mark.parametrize("arguments", [["version"], ["help", "version"], ["version", "--help"]])
def test_the_version_is_a_command_too(arguments: list[str], call: Call) -> None:
    assert call(*arguments) == call("--version")


@pytest.mark.parametrize("arguments", [["serve"], ["keys", "create"], ["load"]])
def test_help_is_a_command_too(arguments: list[str], call: Call) -> None:
    assert call("help", *arguments) == call(*arguments, "--help")
    assert call("help") == call("--help")


def test_the_first_word_of_several_commands_lists_them(call: Call) -> None:
    code, text, error = call("keys")
    assert (code, text) == (2, "")
    assert "  keys create " in error
    assert error.endswith("dragoman keys: expected a command\n")
    assert call("help", "keys")[:2] == call("keys", "--help")[:2]
    assert call("help", "keys")[0] == 0


@pytest.mark.parametrize(("line", "meant"), CASES["what is mistyped is answered with what may be meant"])
def test_what_is_mistyped_is_answered_with_what_may_be_meant(line: str, meant: str, call: Call) -> None:
    code, _, error = call(*line.split())
    assert code == 2
    assert f", did you mean {meant}?" in error.splitlines()[-1]


def test_an_invalid_value_is_reported_with_the_name_that_was_typed(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "translate: --beam-size: " in call("translate", "--beam-size", "0")[2]
    assert "translate: --options.beam-size: " in call("translate", "--options.beam-size=0")[2]
    monkeypatch.setenv("DRAGOMAN_TRANSLATE_OPTIONS__BEAM_SIZE", "0")
    assert "translate: DRAGOMAN_TRANSLATE_OPTIONS__BEAM_SIZE: " in call("translate")[2]


@pytest.mark.parametrize(("arguments", "problem"), CASES["an invalid value is reported with its option"])
def test_an_invalid_value_is_reported_with_its_option(arguments: list[str], problem: str, call: Call) -> None:
    code, _, error = call(*arguments)
    assert (code, problem in error, "Traceback" in error) == (2, True, False)


def test_every_problem_is_reported_at_once(call: Call) -> None:
    lines = call("serve", "bundle", "--slots", "0", "--engines", "0")[2].splitlines()
    assert [line.split(": ")[1] for line in lines] == ["--slots", "--engines"]


@pytest.mark.parametrize("option", ["--color", "--model.color"])
def test_an_unknown_option_is_wrong_usage(option: str, call: Call) -> None:
    code, _, error = call("train", "--data", "x", "--out", "run", option, "green")
    assert (code, option in error) == (2, True)


@pytest.mark.parametrize(("arguments", "further"), CASES["libraries that help does not need are not imported"])
def test_libraries_that_help_does_not_need_are_not_imported(arguments: list[str], further: tuple[str, ...]) -> None:
    """This holds without a command and for `--help`."""
    program = f"""
import sys
from dragoman import command_line
sys.argv = ["dragoman", *{arguments}]
try:
    command_line.main()
except SystemExit:
    pass
print([name for name in {(*HEAVY, *further)} if name in sys.modules], file=sys.stderr)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stderr.splitlines()[-1] == "[]"


def call_without(modules: tuple[str, ...], name: str, option: str = "--help") -> subprocess.CompletedProcess[str]:
    """Runs `dragoman NAME OPTION` as if some modules were not installed."""
    program = f"""
import sys
class Hiding:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {modules!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Hiding())
from dragoman import command_line
sys.argv = ["dragoman", *{name.split()}, {option!r}]
command_line.main()
"""
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(("name", "library", "extra"), CASES["a missing library is reported with its extra"])
def test_a_missing_library_is_reported_with_its_extra(name: str, library: str, extra: str) -> None:
    result = call_without((library,), name)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"dragoman {name}: {library} is not installed, expected the extra {extra}")


def test_the_processor_is_described_without_libraries_of_other_extras() -> None:
    result = call_without(("onnx", "tabulate", "torch"), "inspect", "--cpu")
    assert (result.returncode, result.stderr) == (0, "")
    assert "ONNX Runtime" in result.stdout


def test_a_command_outside_the_wheel_requires_a_checkout() -> None:
    result = call_without(("benchmarks",), "bench")
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert line.startswith("dragoman bench: benchmarks is not installed, expected a checkout of the repository")


def test_every_extra_is_known() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert set(command_line.EXTRAS) == set(project["optional-dependencies"]) - {"dev", "docs"}


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "dragoman", "--help"]
    result = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert result.stdout == f"{command_line.usage()}\n"


def test_the_module_exports_the_clients() -> None:
    assert (dragoman.TranslationClient, dragoman.AsyncTranslationClient) == (TranslationClient, AsyncTranslationClient)
    with pytest.raises(AttributeError, match="NoSuchClient"):
        _ = dragoman.NoSuchClient


def run_interrupted(raised: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(run, "_run", fail)


def test_ctrl_c_ends_every_command_with_status_130_and_no_words(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    run_interrupted(KeyboardInterrupt(), monkeypatch)
    assert call("models") == (130, "", "")


def test_a_failed_system_call_is_one_line_with_path_and_what_to_do(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    run_interrupted(PermissionError(errno.EACCES, "Permission denied", "/a/b"), monkeypatch)
    expected = "dragoman models: /a/b: Permission denied: change its permissions, or run the command as its owner"
    assert call("models")[0] == expected


def test_a_full_disk_behind_standard_output_is_one_line() -> None:
    command = [sys.executable, "-m", "dragoman", "inspect", "--cpu"]
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert result.returncode == 1
    message = "dragoman inspect: No space left on device: free space, or choose a path on another disk"
    assert result.stderr.splitlines()[0] == message
    assert "Traceback" not in result.stderr


def test_a_reader_that_stops_early_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "dragoman", "inspect", "--cpu"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    os.close(writer)
    assert (result.returncode, result.stderr) == (0, "")
