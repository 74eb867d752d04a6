"""Processes of commands end with the statuses of docs/commands.md."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.support.paths import ROOT

CASES = cases(__file__)
PAGE = (ROOT / "docs/commands.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("line", "status", "problem"), CASES["a process ends with the documented status and one line"])
def test_a_process_ends_with_the_documented_status_and_one_line(
    line: str, status: int, problem: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.yaml").write_text("slotz: 1", encoding="utf-8")
    (tmp_path / "a.json").write_text("{", encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "dragoman", *line.split()],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "DRAGOMAN_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, problem in result.stderr) == (status, True), result.stderr
    assert result.stderr.count("\n") == bool(problem)
    assert f"| {status} | " in PAGE
