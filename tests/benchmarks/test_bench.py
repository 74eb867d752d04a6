"""`dragoman bench` reads a plan, measures a question and writes its report."""

import sys
from pathlib import Path

import pytest
import yaml

from dragoman import command_line
from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.native.library import library_path
from tests.support.cases import cases
from tests.support.paths import ROOT

CASES = cases(__file__)

QUESTIONS = ("offline", "service", "translate", "profile", "memories")
TINY = {"steps": 9, "source_tokens": 3, "target_tokens": 3, "rows": [1, 2]}
needs_library = pytest.mark.skipif(library_path() is None, reason="needs the native library")


def refusal(*arguments: str) -> str:
    """Returns the error message of a call."""
    with pytest.raises(SystemExit) as ended:
        command_line.run("bench", list(arguments))
    return str(ended.value.code)


@needs_library
def test_a_question_is_measured_as_planned_and_written_with_its_provenance(
    int8_bundle: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plan.yaml").write_text(yaml.safe_dump({**TINY, "bundle": str(int8_bundle.folder)}), encoding="utf-8")
    plan, where = str(tmp_path / "plan.yaml"), ["--out", str(tmp_path / "out")]
    command_line.run("bench", ["profile", "--plan", plan, "--set", "steps=3", "--rounds", "2", *where])
    text = (tmp_path / "out" / "profile.md").read_text(encoding="utf-8")
    assert text in capsys.readouterr().out
    assert f"Measured by `dragoman bench profile --plan {tmp_path}/plan.yaml --set steps=3 " in text
    written = yaml.safe_load((tmp_path / "out" / "profile.json").read_text(encoding="utf-8"))
    assert (written["plan"]["rounds"], written["plan"]["steps"], written["plan"]["rows"]) == (2, 3, [1, 2])
    for table in written["tables"]:
        assert {column: len(rounds) for column, rounds in table["columns"].items()} == {"1 row": 2, "2 rows": 2}


@pytest.mark.parametrize("plan", sorted((ROOT / "benchmarks" / "plans").iterdir()), ids=lambda path: str(path.name))
def test_the_plans_of_the_repository_are_valid(plan: Path) -> None:
    from benchmarks.offline import OfflinePlan  # noqa: PLC0415 - slow

    OfflinePlan.read(plan, [])


def test_a_missing_library_is_reported_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    problem = refusal("offline", "--out", str(tmp_path), "--set", "systems=[ctranslate2]")
    assert problem.startswith("dragoman bench: ctranslate2 is not installed, expected the extra peers")


def test_an_unknown_question_is_rejected_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal("graphs") == "2"
    error = capsys.readouterr().err
    assert all(question in error for question in QUESTIONS)


@pytest.mark.parametrize(("arguments", "problem"), CASES["invalid input is reported before measuring"])
def test_invalid_input_is_reported_before_measuring(arguments: list[str], problem: str, tmp_path: Path) -> None:
    assert refusal("profile", "--set", f"bundle={tmp_path}", "--out", str(tmp_path), *arguments).startswith(problem)
