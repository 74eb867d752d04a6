"""Figures of rounds become a median and their range; ratios are taken inside each round."""

import json
from pathlib import Path

import pytest

from benchmarks.harness.report import Cell, Report, ReportError, ReportFiles, Spread, Table, cells_of, format_spread
from model.provenance import Provenance

PROVENANCE = Provenance("dragoman bench speed", "a machine", "numpy 2", "2026-11-24")


def row_of(table: Table) -> list[str]:
    """Returns the texts of the cells of a table with one row."""
    return [text.strip() for text in str(table).splitlines()[-1].split("|")[2:-1]]


def test_a_ratio_compares_figures_of_the_same_round() -> None:
    """A machine that is half as fast in one round halves both, and the ratio stays."""
    assert Spread.of_ratio([200.0, 100.0, 220.0], [100.0, 50.0, 100.0]) == Spread(2.0, 2.0, 2.2)


def test_systems_of_different_rounds_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="shorter"):
        Spread.of_ratio([1.0, 2.0], [1.0])


@pytest.mark.parametrize(
    ("figures", "form", "text"),
    [
        ([1000.4], None, "1,000"),
        ([3.256, 99.04, 2.0], None, "3.26 (2-99.0)"),
        ([0.5, 0.25, 1.0], "{:.0%}", "50% (25%-100%)"),
    ],
)
def test_figures_are_shown_with_their_range(figures: list[float], form: str | None, text: str) -> None:
    assert format_spread(figures, form) == text


CELLS = [Cell("speed", "ours", [10.0, 30.0, 20.0]), Cell("speed", "theirs", [5.0, 10.0, 10.0])]


@pytest.mark.parametrize(("divide_by_base", "ratio"), [(False, "2.00x (2.00-3.00)"), (True, "0.50x (0.33-0.50)")])
def test_other_columns_are_compared_with_the_base(ratio: str, *, divide_by_base: bool) -> None:
    table = Table("", CELLS, base="ours", divide_by_base=divide_by_base)
    assert row_of(table) == ["20 (10-30)", f"10, {ratio}"]


def test_the_figures_of_rounds_become_cells_without_those_that_a_round_lacks() -> None:
    found = {"ours": [{"speed": 1.0, "size": 2.0}, {"speed": 3.0}], "theirs": [{"size": 4.0}]}
    assert cells_of(found, compared=["speed"]) == [
        Cell("speed", "ours", [1.0, 3.0], compared=True),
        Cell("size", "ours", [2.0], compared=False),
        Cell("size", "theirs", [4.0], compared=False),
    ]


def test_there_is_no_ratio_without_a_base_with_zero_or_where_none_is_wanted() -> None:
    zero, quality = Cell("speed", "theirs", [0.0, 1.0, 2.0]), Cell("speed", "theirs", [5.0], compared=False)
    assert row_of(Table("", CELLS)) == ["20 (10-30)", "10 (5-10)"]
    assert row_of(Table("", [CELLS[0], zero], base="ours")) == ["20 (10-30)", "1 (0-2)"]
    assert row_of(Table("", [CELLS[0], quality], base="ours")) == ["20 (10-30)", "5"]


def test_a_table_has_text_before_and_notes_after_and_empty_cells_for_missing_figures() -> None:
    cells = [Cell("speed", "ours", [1000.0]), Cell("memory", "theirs", [2.0])]
    assert str(Table("m30k", cells, text="**m30k**", notes=["one", "two"])).splitlines() == [
        "**m30k**",
        "",
        "| m30k   |  ours | theirs |",
        "| ------ | ----: | -----: |",
        "| speed  | 1,000 |        |",
        "| memory |       |      2 |",
        "",
        "- one",
        "- two",
    ]


def test_files_have_the_tables_and_all_rounds(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text("before <!-- speed --> old <!-- /speed --> after", encoding="utf-8")
    files = ReportFiles("speed", tmp_path / "out" / "deep", document)
    files.prepare()
    report = Report([Table("a", CELLS), Table("b", CELLS)], "threads: 1", details={"more": [1]})
    files.write(report, {"rounds": 3}, PROVENANCE)
    text = (files.folder / "speed.md").read_text(encoding="utf-8")
    assert text == f"{report.tables[0]}\n\n{report.tables[1]}\n\n{PROVENANCE}\n"
    assert document.read_text(encoding="utf-8") == f"before <!-- speed -->\n\n{text.strip()}\n\n<!-- /speed --> after"
    figures = json.loads((files.folder / "speed.json").read_text(encoding="utf-8"))
    assert (figures["plan"], figures["details"]) == ({"rounds": 3}, {"more": [1]})
    assert figures["provenance"]["machine"] == "a machine"
    assert [cell["rounds"] for cell in figures["tables"][1]["cells"]] == [cell.rounds for cell in CELLS]


def test_a_document_without_the_section_is_rejected_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "document.md").write_text("no section", encoding="utf-8")
    with pytest.raises(ReportError, match=r"document\.md: expected <!-- speed -->"):
        ReportFiles("speed", tmp_path, tmp_path / "document.md").prepare()


def test_a_folder_that_cannot_be_created_is_rejected_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReportError, match="file: expected a writable folder"):
        ReportFiles("speed", tmp_path / "file", None).prepare()
