"""`make measurements` runs what is not fresh, fills in the pages, and its check refuses stale tables."""

import runpy
from pathlib import Path

import pytest

from benchmarks import measurements
from benchmarks.measurements import Measurement, Measurements, read_measurements
from dragoman.model.versions import installed_versions
from tests.support.paths import ROOT

CHECK = runpy.run_path(str(ROOT / ".ci/measured.py"))
PROBLEMS = CHECK["problems"]
VERSION = installed_versions(["dragoman"])["dragoman"]


@pytest.fixture(name="run")
def _run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Measurements:
    """Returns two measurements that count their calls; no file differs from its commit."""
    monkeypatch.setattr(measurements, "_git", lambda command, *_: "abc" if command == "log" else "")
    (tmp_path / "page.md").write_text("<!-- measured: a --><!-- /measured: a -->", encoding="utf-8")
    counted = Measurement(
        page="page.md", commands=(f"echo x >> {tmp_path}/calls; echo 12; echo noise",), minutes=1, lines=r"\d"
    )
    quiet = counted.model_copy(update={"needs": ("quiet",), "commands": ("exit 1",)})
    return Measurements({"a": counted, "b": quiet}, tmp_path / "results", tmp_path, lambda: 0.5)


def test_a_result_fills_its_place_and_counts_until_the_commit_changes(
    run: Measurements, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [run.measure("a"), run.measure("a")] == ["measured", "fresh"]
    page = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert "\n    12\n\nMeasured by `echo x" in page
    assert "    noise" not in page
    for commit in ("other", "abc+"):
        monkeypatch.setattr(measurements, "_git", lambda command, *_, commit=commit: commit if command == "log" else "")
        assert run.measure("a") == "measured"
    assert (tmp_path / "calls").read_text(encoding="utf-8") == "x\n" * 3
    assert list(PROBLEMS("page.md", page, VERSION, {"a": "page.md"})) == []


def test_a_quiet_measurement_is_refused_next_to_other_programs_and_a_failure_is_reported(run: Measurements) -> None:
    assert run.measure("b").startswith("refused: other programs take 50% of the CPUs")
    empty = run.known["a"].model_copy(update={"lines": "no such line"})
    idle = Measurements({"a": empty, "b": run.known["b"]}, run.results, run.pages, lambda: 0.0)
    assert idle.measure("a") == "failed: lines: expected some that match no such line, got none"
    assert idle.measure("b").startswith("failed: Command")


def test_tables_without_processor_and_date_and_those_of_another_version_are_refused() -> None:
    old = "<!-- measured: a -->\nMeasured by `x` (AMD; dragoman 0.0.1, Python 3; 2026-01-01).\n<!-- /measured: a -->"
    (stale,) = PROBLEMS("p.md", old, VERSION, {"a": "p.md"})
    assert f"expected dragoman {VERSION}" in stale
    table = "# P\n\n## Speed\n\n| a | b |\n| --- | ---: |\n| x | 1 |\n"
    assert list(PROBLEMS("p.md", table, VERSION, {})) == [
        "Speed: expected a processor and a date (YYYY-MM-DD) with its table"
    ]
    assert list(PROBLEMS("p.md", f"{table}\nAMD EPYC, 2026-12-01.", VERSION, {})) == []


def test_a_figure_of_the_readme_that_the_summary_lacks_is_refused() -> None:
    readme = "\n## Figures\n\n| figure | value |\n| --- | ---: |\n| speed | 1,200.5 times |\n\n## Next\n\n| a | 7 |\n"
    assert list(CHECK["unproved"](readme, "It is 1,200.5.")) == []
    assert list(CHECK["unproved"](readme, "It is 1,200.")) == [
        "README.md: Figures: 1,200.5 times: expected it in summary.md"
    ]


def test_the_measurements_of_the_repository_have_a_place_and_known_files() -> None:
    for name, item in read_measurements(ROOT / "benchmarks/measurements.yaml").items():
        page = (ROOT / "docs/measurements" / item.page).read_text(encoding="utf-8")
        assert f"<!-- measured: {name} -->" in page
        assert all((ROOT / path).exists() for path in item.files)
