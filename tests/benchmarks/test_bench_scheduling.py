"""`dragoman bench scheduling` measures every part of a trained and a random model, and validates its input first."""

import json
from pathlib import Path
from typing import Any

import pytest

import dragoman
from benchmarks.systems.engine import Occupancy, occupancy
from loadtest.report_files import ReportFiles
from model.run import RunFolder
from tests.support.paths import ROOT
from tests.support.toy import toy_test_sentences, write_pairs

PARTS = ("modes", "prefill", "head-of-line", "work-conservation")
SHAPE = ["--random.d-model=64", "--random.d-ff=64", "--random.heads=4", "--vocabulary-size=100"]
SHAPE += ["--random.encoder-layers=1", "--random.decoder-layers=1", "--random.max-target-tokens=24"]
QUICK = ["--rounds=2", "--alone=2", "--slots=8", "--budgets=8,64", "--bursts=2", "--neighbors=2", "--short-requests=4"]
SENTENCES = 30
# A dozen processes and two exports: minutes on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module", name="report")
def _report(toy_run: RunFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on the toy model and a random one; its document lies in it."""
    out = tmp_path_factory.mktemp("report")
    data = write_pairs(tmp_path_factory.mktemp("data"), "few", toy_test_sentences()[:SENTENCES])
    document = out / "document.md"
    document.write_text("".join(f"<!-- {part} --><!-- /{part} -->\n" for part in PARTS), encoding="utf-8")
    options = ["--out", str(out), "--document", str(document), "--run", str(toy_run.path), "--data", data]
    dragoman.run("bench scheduling", [*options, *SHAPE, *QUICK])
    return out


def figures(report: Path, part: str) -> dict[str, list[dict[str, Any]]]:
    """Returns the results of a part by model name."""
    found: dict[str, list[dict[str, Any]]] = json.loads((report / f"{part}.json").read_text(encoding="utf-8"))["models"]
    assert list(found) == ["run", "random"]
    return found


def test_both_modes_are_measured_with_all_cpus(report: Path) -> None:
    for modes in figures(report, "modes").values():
        throughput, latency = modes
        assert (throughput["mode"], latency["mode"]) == ("throughput", "latency")
        assert (throughput["engines"], throughput["threads"]) == (latency["threads"], latency["engines"])
        assert throughput["threads"] == 1
        for mode in modes:
            assert len(mode["tokens_per_second"]) == len(mode["alone_ms"]) == 2


def test_a_burst_joins_in_fewer_steps_with_a_larger_prefill_budget(report: Path) -> None:
    for small, large in figures(report, "prefill").values():
        assert (small["budget"], large["budget"]) == (8, 64)
        steps = [[burst["steps"] for bursts in each["bursts"] for burst in bursts] for each in (small, large)]
        assert [len(each) for each in steps] == [4, 4]
        assert min(steps[0]) > max(steps[1])


def test_short_requests_are_measured_alone_and_with_long_ones(report: Path) -> None:
    for found in figures(report, "head-of-line").values():
        alone, with_long = found
        assert (alone["neighbors"], with_long["neighbors"]) == (0, 2)
        assert alone["long_median_ms"] == []
        for result in found:
            assert len(result["p99_ms"]) == 2
            assert all(median <= p99 for median, p99 in zip(result["median_ms"], result["p99_ms"], strict=True))


def test_slots_are_taken_while_sequences_wait(report: Path) -> None:
    for found in figures(report, "work-conservation").values():
        assert [result["search"] for result in found] == ["greedy", "beam 4"]
        assert all(0.9 < share <= 1 for result in found for share in result["occupancy"])


def test_the_document_gets_the_tables_and_their_provenance(report: Path) -> None:
    text = (report / "document.md").read_text(encoding="utf-8")
    assert text.count("Measured by `dragoman bench scheduling ") == len(PARTS)
    for part in PARTS:
        assert (report / f"{part}.md").read_text(encoding="utf-8").strip() in text


@pytest.mark.parametrize("part", PARTS)
def test_the_documentation_has_a_section_for_the_tables(part: str, tmp_path: Path) -> None:
    ReportFiles(part, tmp_path, ROOT / "docs" / "measurements" / "engine.md").prepare()


def test_occupancy_counts_only_steps_while_sequences_wait() -> None:
    steps = [Occupancy(8, 3), Occupancy(6, 1), Occupancy(1, 0)]
    assert occupancy(steps, slots=8) == 14 / 16


def test_occupancy_is_one_if_no_sequence_ever_waits() -> None:
    assert occupancy([Occupancy(1, 0)], slots=8) == 1


def test_an_unknown_part_is_rejected_with_the_known_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        dragoman.run("bench scheduling", ["--out", str(tmp_path), "--parts", "fairness"])
    error = capsys.readouterr().err
    assert "--parts.0: Input should be 'modes', 'prefill', 'head-of-line' or 'work-conservation'" in error


def test_a_document_without_a_section_is_rejected_before_measuring(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text("no place", encoding="utf-8")
    with pytest.raises(SystemExit, match=f"^dragoman bench scheduling: document: {document}: "):
        dragoman.run("bench scheduling", ["--out", str(tmp_path), "--document", str(document), *SHAPE, *QUICK])
