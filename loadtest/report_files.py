"""Files of a benchmark report: Markdown and JSON in a folder, and a marked section of a document."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.provenance import MarkError, Provenance, fill


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Formats a Markdown table, aligned in the source text too: `words` text columns on the left, then numbers."""
    widths = [max(3, *map(len, column)) for column in zip(heading, *rows, strict=True)]
    left = [place < words for place in range(len(heading))]
    rule = ["-" * width if at_left else f"{'-' * (width - 1)}:" for width, at_left in zip(widths, left, strict=True)]
    return "\n".join(_line(cells, widths, left) for cells in (heading, rule, *rows))


def _line(cells: Sequence[str], widths: Sequence[int], left: Sequence[bool]) -> str:
    aligned = [
        cell.ljust(width) if at_left else cell.rjust(width)
        for cell, width, at_left in zip(cells, widths, left, strict=True)
    ]
    return f"| {' | '.join(aligned)} |"


if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class ReportFileError(Exception):
    """A file cannot be written, or a document lacks the marked section; the message names it."""


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """The files of one report.

    Attributes:
        name: of NAME.md and NAME.json, and of the section between `<!-- name -->` and `<!-- /name -->` in the document.
        document: a Markdown file with that section, if any.
    """

    name: str
    folder: Path
    document: Path | None

    def prepare(self) -> None:
        """Creates the folder and checks the section, so that errors appear before a long measurement.

        Raises:
            ReportFileError: if the folder cannot be created or the section is missing.
        """
        self._filled("")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ReportFileError(f"out: {self.folder}: expected a writable folder: {error.strerror}") from error

    def write(self, table: str, figures: dict[str, Any], provenance: Provenance) -> None:
        """Writes the table (Markdown), the figures (all results, for the JSON file) and their provenance.

        Raises:
            ReportFileError: if a file cannot be written.
        """
        text = f"{table}\n\n{provenance}\n"
        record = json.dumps({"provenance": asdict(provenance), **figures}, indent=1, ensure_ascii=False)
        try:
            (self.folder / f"{self.name}.md").write_text(text, encoding="utf-8")
            (self.folder / f"{self.name}.json").write_text(f"{record}\n", encoding="utf-8")
            if self.document is not None:
                self.document.write_text(self._filled(text), encoding="utf-8")
        except OSError as error:
            raise ReportFileError(f"{error.filename}: expected a writable file: {error.strerror}") from error

    def write_models(
        self,
        results: Sequence["DataclassInstance"],
        tables: Iterable[str],
        settings: dict[str, Any],
        provenance: Provenance,
    ) -> None:
        """Prints and writes the results of several models, with their tables and the settings of the benchmark.

        Raises:
            ReportFileError: if a file cannot be written.
        """
        table = "\n\n".join(tables)
        print(table)
        self.write(table, {"settings": settings, "models": list(map(asdict, results))}, provenance)

    def _filled(self, content: str) -> str:
        if self.document is None:
            return ""
        try:
            return fill(self.document.read_text(encoding="utf-8"), self.name, content)
        except (OSError, MarkError) as error:
            raise ReportFileError(f"document: {self.document}: {error}") from error
