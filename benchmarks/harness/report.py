"""Measured figures and their files: tables in Markdown, all figures in JSON.

Figures become a median and their range. A ratio of two columns is taken within each round, so that other load on the
machine affects both figures alike.
"""

import json
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.harness.errors import BenchmarkError
from dragoman.model.markup_table import markup_table
from dragoman.model.provenance import Provenance

# Smaller figures have one decimal or two, so that they have about three digits.
FINE, FINEST = 100, 10
# The figures of one measurement, by row of a table, and those of every round, by column.
Figures = dict[str, float]
Columns = Mapping[str, Sequence[Figures]]


@dataclass(frozen=True, slots=True)
class Table:
    """Figures that are shown together.

    Attributes:
        name: heading of the first column.
        base: the column that all others are compared with, if any.
        compared: the rows with ratios, of the base to their column.
        order: of the rows; by default that of their first figures.
        text: a paragraph before the table.
        notes: list items after it.
    """

    name: str
    columns: Columns
    base: str | None = None
    compared: Collection[str] = ()
    order: Sequence[str] = ()
    text: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[str]:
        """Names of the rows."""
        found = dict.fromkeys(row for rounds in self.columns.values() for repetition in rounds for row in repetition)
        return sorted(found, key=self.order.index) if self.order else list(found)

    def figures(self, row: str, column: str) -> list[float]:
        """Returns the figures of a cell, one per round that has it."""
        return [item[row] for item in self.columns[column] if row in item]

    def __str__(self) -> str:
        cells = [[row, *(self._format(row, column) for column in self.columns)] for row in self.rows]
        table = markup_table([self.name, *self.columns], cells)
        return "\n\n".join(filter(None, [self.text, table, "\n".join(f"- {note}" for note in self.notes)]))

    def _format(self, row: str, column: str) -> str:
        figures = self.figures(row, column)
        base = [] if self.base in (None, column) or row not in self.compared else self.figures(row, str(self.base))
        if not figures:
            return ""
        if not base or not all([*figures, *base]):  # there is no ratio to a figure that is zero
            return format_spread(figures)
        ratios = [part / whole for part, whole in zip(base, figures, strict=True)]
        return f"{_shown(statistics.median(figures))}, {format_spread(ratios, '{:.2f}'.format, 'x')}"


def _shown(figure: float) -> str:
    decimals = 0 if float(figure).is_integer() or abs(figure) >= FINE else 1 if abs(figure) >= FINEST else 2
    return f"{figure:,.{decimals}f}"


def format_spread(figures: Sequence[float], show: Callable[[float], str] = _shown, unit: str = "") -> str:
    """Returns `237 (125-241)`: median, minimum and maximum; a single figure has no range."""
    median = f"{show(statistics.median(figures))}{unit}"
    return median if len(figures) == 1 else f"{median} ({show(min(figures))}-{show(max(figures))})"


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a benchmark.

    `threads` is their kind and number, as `threads of each system: 2`. `details` are other results for the JSON file.
    """

    tables: list[Table]
    threads: str
    details: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables))


class ReportFiles(NamedTuple):
    """The files NAME.md and NAME.json in a folder."""

    name: str
    folder: Path

    def prepare(self) -> None:
        """Creates the folder before a long measurement; raises BenchmarkError if it cannot."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BenchmarkError(f"out: {self.folder}: expected a writable folder: {error.strerror}") from error

    def write(self, report: Report, plan: dict[str, Any], provenance: Provenance) -> None:
        """Writes tables, provenance, figures and plan; raises BenchmarkError if a file cannot be written."""
        text = f"{report}\n\n{provenance}\n"
        record = {"provenance": asdict(provenance), "plan": plan, "tables": list(map(asdict, report.tables))}
        figures = json.dumps({**record, "details": report.details}, indent=1, ensure_ascii=False)
        try:
            (self.folder / f"{self.name}.md").write_text(text, encoding="utf-8")
            (self.folder / f"{self.name}.json").write_text(f"{figures}\n", encoding="utf-8")
        except OSError as error:
            raise BenchmarkError(f"{error.filename}: expected a writable file: {error.strerror}") from error
