"""A report writes Markdown, JSON and a filled document, and finds errors before the measurement."""

import json
from pathlib import Path

import pytest

from loadtest.report_files import ReportFileError, ReportFiles
from model.provenance import Provenance

PROVENANCE = Provenance("dragoman x", "a machine", "Python 3", "2026-01-01")


def test_table_and_figures_are_written_with_their_provenance(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text("before\n<!-- speed -->\nold\n<!-- /speed -->\nafter\n", encoding="utf-8")
    files = ReportFiles("speed", tmp_path / "out" / "deep", document)
    files.prepare()
    files.write("| table |", {"figure": 1}, PROVENANCE)
    text = f"| table |\n\n{PROVENANCE}"
    assert (tmp_path / "out" / "deep" / "speed.md").read_text(encoding="utf-8") == f"{text}\n"
    assert document.read_text(encoding="utf-8") == f"before\n<!-- speed -->\n\n{text}\n\n<!-- /speed -->\nafter\n"
    figures = json.loads((tmp_path / "out" / "deep" / "speed.json").read_text(encoding="utf-8"))
    assert (figures["provenance"]["command"], figures["figure"]) == ("dragoman x", 1)


def test_a_document_without_the_section_is_reported(tmp_path: Path) -> None:
    (tmp_path / "document.md").write_text("no place", encoding="utf-8")
    with pytest.raises(ReportFileError, match=r"^document: .*document\.md: expected <!-- speed -->"):
        ReportFiles("speed", tmp_path, tmp_path / "document.md").prepare()


def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ReportFileError, match=r"^out: .*file: .*File exists"):
        ReportFiles("speed", tmp_path / "file", None).prepare()
