"""`dragoman bench online` measures servers in turns under the same load, and validates its input first."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import dragoman
from benchmarks import online as online_benchmark
from loadtest.report_files import ReportFiles
from model.run import RunFolder
from tests.support.paths import ROOT

CPUS = sorted(os.sched_getaffinity(0))
WHERE = [f"--server-cpus={CPUS[0]}", f"--generator-cpus={CPUS[-1]}"]
# No test reads the figures: a trial shows little more than that servers answer.
QUICK = ["--rounds=1", "--alone-seconds=0.5", "--trial-seconds=0.5", "--tolerance=0.9", "--first-rate=32"]
TRIED = ["--searches=greedy", "--windows-ms=0,1", "--max-lag-seconds=10", "--slots=8"]

# Servers are started a dozen times: minutes on a busy machine.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module", name="report")
def _report(toy_run: RunFolder, toy_data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on the toy model; its document lies in it."""
    out = tmp_path_factory.mktemp("report")
    document = out / "document.md"
    document.write_text("<!-- online --><!-- /online -->", encoding="utf-8")
    options = ["--run", str(toy_run.path), "--data", toy_data, "--out", str(out), "--document", str(document)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online_benchmark, "WARM_UP_SECONDS", 0.2)
        dragoman.run("bench online", [*options, "--baselines=ctranslate2", *WHERE, *QUICK, *TRIED])
    return out


@pytest.fixture(name="search")
def _search(report: Path) -> dict[str, Any]:
    (search,) = json.loads((report / "online.json").read_text(encoding="utf-8"))["searches"]
    return dict(search)


def refusal(*arguments: str) -> str:
    """Returns the error message of a call."""
    with pytest.raises(SystemExit) as ended:
        dragoman.run("bench online", [*QUICK, *arguments])
    return str(ended.value.code)


def test_every_server_is_measured(search: dict[str, Any]) -> None:
    assert [system["system"] for system in search["systems"]] == ["dragoman", "ctranslate2"]
    for system in search["systems"]:
        assert system["alone_seconds"] > 0
        assert len(system["capacities"]) == 1


def test_baselines_try_every_window_and_dragoman_its_defaults(search: dict[str, Any]) -> None:
    windows = ["1 x 1 threads, window 0 ms", "1 x 1 threads, window 1 ms"]
    assert [list(system["tried"]) for system in search["systems"]] == [["1 x 1 threads"], windows]
    assert min(search["systems"][1]["tried"].values()) > 0


def test_the_bound_is_three_times_the_slower_single_request_of_dragoman_and_ctranslate2(search: dict[str, Any]) -> None:
    alone = {system["system"]: system["alone_seconds"] for system in search["systems"]}
    assert search["bound_seconds"] == pytest.approx(3 * max(alone["dragoman"], alone["ctranslate2"]))


def test_the_document_gets_the_tables_and_their_provenance(report: Path) -> None:
    text = (report / "document.md").read_text(encoding="utf-8")
    assert text.startswith("<!-- online -->\n\n**run**, int8-static: ")
    assert (report / "online.md").read_text(encoding="utf-8").strip() in text
    assert "Measured by `dragoman bench online --run " in text


def test_the_documentation_has_a_section_for_the_tables(tmp_path: Path) -> None:
    ReportFiles("online", tmp_path, ROOT / "docs" / "measurements" / "benchmarks.md").prepare()


def test_a_missing_library_is_reported_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    problem = refusal("--out", str(tmp_path), "--run", str(tmp_path))
    assert problem.startswith("dragoman bench online: ctranslate2 is not installed, ")
    assert "the extra peers" in problem


def test_a_folder_without_a_model_is_rejected(toy_data: str, tmp_path: Path) -> None:
    problem = refusal("--out", str(tmp_path / "out"), "--data", toy_data, "--run", str(tmp_path / "none"))
    assert problem.startswith(f"dragoman bench online: {tmp_path / 'none'}")


def test_data_of_another_direction_is_rejected(toy_run: RunFolder, tmp_path: Path) -> None:
    (tmp_path / "pairs.de-en.tsv").write_text("wort\tword\n", encoding="utf-8")
    data = f"tsv:{tmp_path / 'pairs.de-en.tsv'}"
    problem = refusal("--out", str(tmp_path), "--run", str(toy_run.path), "--data", data)
    assert problem.startswith("dragoman bench online: data: de-en: ")


def test_cpus_that_this_process_may_not_use_are_rejected(toy_run: RunFolder, toy_data: str, tmp_path: Path) -> None:
    problem = refusal("--out", str(tmp_path), "--run", str(toy_run.path), "--data", toy_data, "--generator-cpus=4096")
    assert problem.startswith("dragoman bench online: ")
    assert "4096" in problem
