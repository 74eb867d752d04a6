"""Measured figures, one per round, and their files: a table in Markdown, all figures in JSON, a section of a document.

Figures become a median and their range. A ratio of two columns is taken within each round, so that other load on the
machine affects both figures alike.
"""

import json
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from model.provenance import MarkError, Provenance, fill

# Smaller figures have one decimal or two, so that they have about three digits.
FINE, FINEST = 100, 10
# The figures of one turn, by row of a table.
Figures = dict[str, float]


class Spread(NamedTuple):
    """Median, minimum and maximum of all rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, figures: Sequence[float]) -> Self:
        """Returns the spread of one or more figures."""
        return cls(statistics.median(figures), min(figures), max(figures))

    @classmethod
    def of_ratio(cls, figures: Sequence[float], base: Sequence[float]) -> Self:
        """Returns the spread of the ratios of figures to a base; both have one figure per round."""
        return cls.of([figure / each for figure, each in zip(figures, base, strict=True)])


@dataclass(frozen=True, slots=True)
class Cell:
    """The figures of one measure of one system.

    Attributes:
        row: the measure with its unit, as `greedy, tokens/s`.
        column: the system.
        rounds: one figure per round.
        form: format of a figure, as `{:.1%}`; None: about three digits.
        compared: whether the table shows a ratio, if it has a base.
    """

    row: str
    column: str
    rounds: list[float]
    form: str | None = None
    compared: bool = True


def cells_of(found: Mapping[str, Sequence[Figures]], compared: Collection[str] = ()) -> list[Cell]:
    """Returns the cells of systems by name, given the figures of each round; the rows in `compared` get ratios."""
    rows = dict.fromkeys(row for rounds in found.values() for each in rounds for row in each)
    return [
        Cell(row, column, [each[row] for each in rounds if row in each], compared=row in compared)
        for row in rows
        for column, rounds in found.items()
        if any(row in each for each in rounds)
    ]


@dataclass(frozen=True, slots=True)
class Table:
    """Cells that are shown together; rows and columns are in the order of their first cells.

    Attributes:
        name: heading of the first column.
        base: the column that all others are compared with, if any.
        divide_by_base: whether a ratio is that of its column to the base; otherwise it is that of the base.
        text: a paragraph before the table.
        notes: list items after it.
    """

    name: str
    cells: list[Cell]
    base: str | None = None
    divide_by_base: bool = False
    text: str = ""
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        cells = {(cell.row, cell.column): cell for cell in self.cells}
        columns = list(dict.fromkeys(cell.column for cell in self.cells))
        rows = [
            [row, *(self._format(cells, row, column) for column in columns)]
            for row in dict.fromkeys(cell.row for cell in self.cells)
        ]
        parts = [self.text, markdown_table([self.name, *columns], rows), "\n".join(f"- {note}" for note in self.notes)]
        return "\n\n".join(filter(None, parts))

    def _format(self, cells: Mapping[tuple[str, str], Cell], row: str, column: str) -> str:
        cell = cells.get((row, column))
        if cell is None:
            return ""
        base = None if self.base in (None, column) else cells.get((row, str(self.base)))
        pair = () if base is None or not cell.compared else (base.rounds, cell.rounds)
        if not pair or not all(map(all, pair)):  # there is no ratio to a figure that is zero
            return format_spread(cell.rounds, cell.form)
        ratio = Spread.of_ratio(*(reversed(pair) if self.divide_by_base else pair))
        return f"{format_spread([Spread.of(cell.rounds).median], cell.form)}, {format_spread(ratio, '{:.2f}', 'x')}"


def format_spread(figures: Sequence[float], form: str | None = None, unit: str = "") -> str:
    """Returns `237 (125-241)`: median, minimum and maximum; a single figure has no range.

    `form` is that of a cell, `unit` follows the median.
    """

    def show(figure: float) -> str:
        if form is not None:
            return form.format(figure)
        decimals = 0 if float(figure).is_integer() or abs(figure) >= FINE else 1 if abs(figure) >= FINEST else 2
        return f"{figure:,.{decimals}f}"

    median, low, high = Spread.of(figures)
    return f"{show(median)}{unit}" if len(figures) == 1 else f"{show(median)}{unit} ({show(low)}-{show(high)})"


def markdown_table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats a Markdown table, aligned in the source text too: text on the left, then numbers."""
    widths = [max(3, *map(len, column)) for column in zip(heading, *rows, strict=True)]
    rule = ["-" * widths[0], *(f"{'-' * (width - 1)}:" for width in widths[1:])]
    lines = []
    for first, *others in (heading, rule, *rows):
        aligned = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append(f"| {' | '.join([first.ljust(widths[0]), *aligned])} |")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a benchmark.

    Attributes:
        tables: all figures.
        threads: kind and number of threads or CPUs, as `threads of each system: 2`.
        details: other results for the JSON file.
        environments: library versions of other Python environments that took part.
    """

    tables: list[Table]
    threads: str
    details: dict[str, Any] = field(default_factory=dict)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self.tables))


class ReportError(Exception):
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
            ReportError: if the folder cannot be created or the section is missing.
        """
        self._filled("")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ReportError(f"out: {self.folder}: expected a writable folder: {error.strerror}") from error

    def write(self, report: Report, plan: dict[str, Any], provenance: Provenance) -> None:
        """Writes the tables and their provenance, and all figures with the plan that was measured.

        Raises:
            ReportError: if a file cannot be written.
        """
        text = f"{report}\n\n{provenance}\n"
        record = {"provenance": asdict(provenance), "plan": plan, "tables": list(map(asdict, report.tables))}
        figures = json.dumps({**record, "details": report.details}, indent=1, ensure_ascii=False)
        try:
            (self.folder / f"{self.name}.md").write_text(text, encoding="utf-8")
            (self.folder / f"{self.name}.json").write_text(f"{figures}\n", encoding="utf-8")
            if self.document is not None:
                self.document.write_text(self._filled(text), encoding="utf-8")
        except OSError as error:
            raise ReportError(f"{error.filename}: expected a writable file: {error.strerror}") from error

    def _filled(self, content: str) -> str:
        if self.document is None:
            return ""
        try:
            return fill(self.document.read_text(encoding="utf-8"), self.name, content)
        except (OSError, MarkError) as error:
            raise ReportError(f"document: {self.document}: {error}") from error
