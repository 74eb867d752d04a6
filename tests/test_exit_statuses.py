"""Processes of commands end with the statuses of docs/commands.md."""

import sys
from pathlib import Path
from subprocess import PIPE

import pytest

from tests.support.cases import cases
from tests.support.forked import ForkedPopen
from tests.support.paths import ROOT

CASES = cases(__file__)
PAGE = (ROOT / "docs/commands.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("line", "status", "problem"), CASES["a process ends with the documented status and one line"])
def test_a_process_ends_with_the_documented_status_and_one_line(
    line: str, status: int, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("slotz: 1", encoding="utf-8")
    (tmp_path / "a.json").write_text("{", encoding="utf-8")
    command = [sys.executable, "-m", "dragoman", *line.split()]
    environment = {"DRAGOMAN_CACHE": str(tmp_path / "cache")}
    with ForkedPopen(command, cwd=tmp_path, env=environment, stdout=PIPE, stderr=PIPE, text=True) as process:
        errors = process.communicate()[1]
    assert (process.returncode, problem in errors) == (status, True), errors
    assert errors.count("\n") == bool(problem)
    assert f"| {status} | " in PAGE
