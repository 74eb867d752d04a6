"""The files of a load's report: load.json holds all that was found, load.html shows it. Called by the commands."""

from pathlib import Path

from loadtest.document import LoadDocument, from_json, to_json
from loadtest.html_report import render
from loadtest.report_files import ReportFileError


def write_report(folder: Path, document: LoadDocument) -> None:
    """Writes load.json and load.html into a folder, which is made.

    Raises:
        ReportFileError: if that fails.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "load.json").write_bytes(to_json(document))
        (folder / "load.html").write_text(render({folder.name: document}), encoding="utf-8")
    except OSError as error:
        raise ReportFileError(f"out: {error.filename}: {error.strerror}") from error


def read_report(path: Path) -> LoadDocument:
    """Returns what load.json holds.

    Raises:
        ReportFileError: if the file cannot be read or is no report.
    """
    try:
        return from_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ReportFileError(f"{path}: {error}") from error
