"""Where a benchmark leaves its findings: Markdown and JSON in a folder, and a place in a document.

Knows nothing of what was measured. Called by the benchmarks.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model.marked_text import MarkError, fill
from model.provenance import Provenance

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
