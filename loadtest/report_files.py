"""Where a benchmark leaves its findings: Markdown and JSON in a folder, and a place in a document.

Knows nothing of what was measured. Called by the benchmarks.

A table in Markdown whose columns stand below each other, so that it can also be read as it is.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.provenance import MarkError, Provenance, fill


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Returns a table.

    Args:
        heading: of each column.
        rows: their cells.
        words: columns at the left that hold words; the others hold figures, aligned to the right.
    """
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
    """A file cannot be written, or a document has no place for a table; the message names it."""


@dataclass(frozen=True, slots=True)
class ReportFiles:
    """Files of the report of a name.

    Attributes:
        name: of the files, and of the place between `<!-- name -->` and `<!-- /name -->` in the document.
        folder: gets NAME.md and NAME.json.
        document: a Markdown file whose place is filled in, if there is one.
    """

    name: str
    folder: Path
    document: Path | None

    def prepare(self) -> None:
        """Makes the folder and looks for the place, before minutes of measuring.

        Raises:
            ReportFileError: if either fails.
        """
        self._filled("")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ReportFileError(f"out: {self.folder}: {error.strerror}, expected a folder to write to") from error

    def write(self, table: str, figures: dict[str, Any], provenance: Provenance) -> None:
        """Writes everything.

        Args:
            table: Markdown.
            figures: all that was measured.
            provenance: how; it follows the table, and stands before the figures.

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
            raise ReportFileError(f"{error.filename}: {error.strerror}, expected a file to write to") from error

    def write_models(
        self,
        results: Sequence["DataclassInstance"],
        tables: Iterable[str],
        settings: dict[str, Any],
        provenance: Provenance,
    ) -> None:
        """Prints what was measured of some models and writes it.

        Args:
            results: of each model.
            tables: the same as Markdown.
            settings: of the benchmark.
            provenance: as of `write`.

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
