"""The scripts of `dragoman completion`, in real shells."""

import subprocess
from pathlib import Path
from shutil import which

import pytest

from dragoman import command_line
from dragoman.hub.store import Installed, Store
from dragoman.serve.commands.completion import script
from tests.support.cases import cases

CASES = cases(__file__)
COMPLETE = 'source "$1"; COMP_LINE="$2"; COMP_POINT=${#2}; _dragoman; printf "%s\\n" "${COMPREPLY[@]}"'


@pytest.fixture(name="cache")
def _cache(tmp_path: Path) -> Path:
    for name in ("firefox:en-cs", "Helsinki-NLP/opus-mt-en-de"):
        pair = name[-5:]
        record = Installed(
            name=name, model=f"m-{pair}", origin="o", license=None, key=pair, directions=(pair,), size_bytes=1
        )
        Store(tmp_path).record(record)
    (tmp_path / "files" / "a folder").mkdir(parents=True)
    (tmp_path / "files" / "a.txt").touch()
    return tmp_path


def complete(line: str, cache: Path) -> list[str]:
    result = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", script("bash"), line],  # noqa: S607 - the user's bash
        capture_output=True,
        text=True,
        check=True,
        cwd=cache / "files",
        env={"PATH": "/usr/bin:/bin", "DRAGOMAN_CACHE": str(cache)},
    )
    assert result.stderr.replace("compopt: not currently executing completion function", "").count("error") == 0
    return sorted(filter(None, result.stdout.splitlines()))


@pytest.mark.parametrize(("line", "expected"), CASES["bash completes what is typed without a start of the program"])
def test_bash_completes_what_is_typed_without_a_start_of_the_program(
    line: str, expected: list[str], cache: Path
) -> None:
    assert complete(line, cache) == expected


def test_a_name_of_a_model_is_no_command(cache: Path) -> None:
    name = "/models/$(touch${IFS}run)"
    Store(cache).record(
        Installed(name=name, model="m", origin="o", license=None, key="k", directions=("en-fr",), size_bytes=1)
    )
    assert complete("dragoman serve /models/", cache)
    assert not (cache / "files" / "run").exists()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_and_has_the_syntax_of_its_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    command_line.run("completion", [shell])
    text = capsys.readouterr().out
    for name in command_line.COMMANDS:
        assert name.rpartition(" ")[2] in text
    if (program := which(shell)) is None:
        pytest.skip(f"no {shell} on this machine")
    assert subprocess.run([program, "-n", script(shell)], capture_output=True, check=True).stderr == b""
