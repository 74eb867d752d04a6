"""Figures of rounds become a median and their range; ratios are taken inside each round."""

import json
from pathlib import Path

import pytest

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.report import Figures, Report, ReportFiles, Table, format_spread
from dragoman.model.provenance import Provenance

PROVENANCE = Provenance("dragoman bench speed", "a machine", "numpy 2", "2026-11-24")


def row_of(table: Table) -> list[str]:
    return [text.strip() for text in str(table).splitlines()[-1].split("|")[2:-1]]


def speeds(**rounds: list[float]) -> dict[str, list[Figures]]:
    """Returns the columns of a table with one row."""
    return {column: [{"speed": figure} for figure in figures] for column, figures in rounds.items()}


def test_a_ratio_compares_figures_of_the_same_round() -> None:
    """A machine that is half as fast in one round halves both, and the ratio stays."""
    table = Table("", speeds(ours=[200.0, 100.0, 220.0], theirs=[100.0, 50.0, 100.0]), "ours", ["speed"])
    assert row_of(table) == ["200 (100-220)", "100, 2.00x (2.00-2.20)"]


def test_systems_of_different_rounds_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="shorter"):
        str(Table("", speeds(ours=[1.0, 2.0], theirs=[1.0]), "ours", ["speed"]))


@pytest.mark.parametrize(("figures", "text"), [([1000.4], "1,000"), ([3.256, 99.04, 2.0], "3.26 (2-99.0)")])
def test_figures_are_shown_with_their_range(figures: list[float], text: str) -> None:
    assert format_spread(figures) == text


COLUMNS = speeds(ours=[10.0, 30.0, 20.0], theirs=[5.0, 10.0, 10.0])


def test_other_columns_are_compared_with_the_base() -> None:
    assert row_of(Table("", COLUMNS, "ours", ["speed"])) == ["20 (10-30)", "10, 2.00x (2.00-3.00)"]


def test_there_is_no_ratio_without_a_base_with_zero_or_where_none_is_wanted() -> None:
    assert row_of(Table("", COLUMNS, None, ["speed"])) == ["20 (10-30)", "10 (5-10)"]
    zero = speeds(ours=[10.0, 30.0, 20.0], theirs=[0.0, 1.0, 2.0])
    assert row_of(Table("", zero, "ours", ["speed"])) == ["20 (10-30)", "1 (0-2)"]
    assert row_of(Table("", COLUMNS, "ours")) == ["20 (10-30)", "10 (5-10)"]


def test_a_table_has_text_before_and_notes_after_and_empty_cells_for_missing_figures() -> None:
    columns = {"ours": [{"speed": 1000.0}, {}], "theirs": [{"memory": 2.0}]}
    text, table, notes = str(Table("m30k", columns, text="**m30k**", notes=["one", "two"])).split("\n\n")
    assert (text, notes) == ("**m30k**", "- one\n- two")
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert cells[0] == ["m30k", "ours", "theirs"]
    assert cells[2:] == [["speed", "1,000", ""], ["memory", "", "2"]]


def test_files_have_the_tables_and_all_rounds(tmp_path: Path) -> None:
    files = ReportFiles("speed", tmp_path / "out" / "deep")
    files.prepare()
    report = Report([Table("a", COLUMNS), Table("b", COLUMNS)], "threads: 1", details={"more": [1]})
    files.write(report, {"rounds": 3}, PROVENANCE)
    text = (files.folder / "speed.md").read_text(encoding="utf-8")
    assert text == f"{report.tables[0]}\n\n{report.tables[1]}\n\n{PROVENANCE}\n"
    figures = json.loads((files.folder / "speed.json").read_text(encoding="utf-8"))
    assert (figures["plan"], figures["details"]) == ({"rounds": 3}, {"more": [1]})
    assert figures["provenance"]["machine"] == "a machine"
    assert figures["tables"][1]["columns"] == COLUMNS


def test_a_folder_that_cannot_be_created_is_rejected_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BenchmarkError, match="file: expected a writable folder"):
        ReportFiles("speed", tmp_path / "file").prepare()
