"""The tables in docs/reliability.md, filled in by tests: of promises, and of measurements with a row per test.

A test that shows a promise has the marker `promise(item)` and reports figures with the fixture `measured`, or a row of
another table with `add_row`. `pytest tests -m promise --promises docs/reliability.md` writes the tables if no test
failed. Markers, figures and rows travel with the reports, so any number of test processes works.
"""

import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dragoman.model.provenance import MarkError, Provenance, fill
from tests.support.cases import cases

# The text of each promise in the table.
PROMISES: dict[str, str] = cases(__file__)
# Prints the table instead of writing a document.
TERMINAL = Path("-")
MARKER = "promise"
MEASURED = "measured"
ROW = "row"
PLACE = "promises"
HEADING = ("item", "promise", "measured", "tests")
LIBRARIES = ("onnxruntime", "grpcio", "httptools", "pytest")

Measured = Callable[[str, str], None]
AddRow = Callable[[str, Mapping[str, str]], None]


@dataclass
class Shown:
    """Numbers of tests of one promise by file, and figures by test."""

    tests: Counter[str] = field(default_factory=Counter)
    figures: dict[str, list[str]] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[str, str]:
        """Returns the figures, each once and in the order of the tests, and the files."""
        figures = dict.fromkeys(figure for _, figures in sorted(self.figures.items()) for figure in figures)
        files = ", ".join(f"{count} in {file}" for file, count in sorted(self.tests.items()))
        return "<br>".join(figures) or "holds", files


class PromiseTable:
    """Collects reports and writes the table, in the process that gets all reports."""

    def __init__(self, document: Path, command: str) -> None:
        """Finds the place of the table, before minutes of testing; raises UsageError if the document has none."""
        self._document = document
        self._command = command
        self._shown: dict[str, Shown] = {}
        self._rows: dict[str, list[Mapping[str, str]]] = {}
        self._filled({PLACE: ""})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" or not report.passed:
            return
        file = report.nodeid.partition("::")[0]
        for item in _values(report, MARKER):
            shown = self._shown.setdefault(item, Shown())
            shown.tests[file] += 1
            shown.figures[report.nodeid] = [figure for of, figure in _values(report, MEASURED) if of == item]
        for place, row in _values(report, ROW):
            self._rows.setdefault(place, []).append(row)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Writes the tables if every test passed: the document holds no partial table."""
        if exitstatus == pytest.ExitCode.OK and self._document != TERMINAL:
            self._document.write_text(self._filled(self.tables()), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._document == TERMINAL:
            terminalreporter.write_line("\n\n".join(self.tables().values()))

    def tables(self) -> dict[str, str]:
        """Returns the tables by place, each with the conditions of its figures; those without rows are left out."""
        provenance = Provenance.now(self._command, LIBRARIES, "threads of each engine: 1")
        items = sorted(self._shown, key=lambda item: int(item.removeprefix("R")))
        tables = {PLACE: _table(HEADING, [(item, PROMISES[item], *self._shown[item].cells) for item in items])}
        for place, rows in self._rows.items():
            tables[place] = _table(tuple(rows[0]), (tuple(row.values()) for row in rows))
        return {place: f"{table}\n\n{provenance}" for place, table in tables.items()}

    def _filled(self, tables: Mapping[str, str]) -> str:
        if self._document == TERMINAL:
            return ""
        try:
            text = self._document.read_text(encoding="utf-8")
            for place, content in tables.items():
                text = fill(text, place, content)
        except (OSError, MarkError) as error:
            raise pytest.UsageError(f"--promises: {self._document}: {error}") from error
        return text


def _table(heading: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heading, ["---"] * len(heading), *([text.replace("|", r"\|") for text in row] for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _values(report: pytest.TestReport, name: str) -> list[Any]:
    return [value for user_property, value in report.user_properties if user_property == name]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("promises of reliability")
    group.addoption("--promises", type=Path, metavar="DOCUMENT", help="fill in the table of a document; -: print it")
    group.addoption("--thorough", action="store_true", help="test promises as often as docs/reliability.md says")
    group.addoption("--soak-seconds", type=float, default=2.0, help="how long the mixed load lasts")
    group.addoption("--flood-seconds", type=float, default=2.0, help="how long each flood of hostile traffic lasts")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARKER}(item): shows an item of docs/reliability.md")
    document: Path | None = config.getoption("promises")
    if document is not None and not hasattr(config, "workerinput"):
        command = shlex.join(["pytest", *config.invocation_params.args])
        config.pluginmanager.register(PromiseTable(document, command), PLACE)


def pytest_itemcollected(item: pytest.Item) -> None:
    for marker in item.iter_markers(MARKER):
        (promise,) = marker.args
        if promise not in PROMISES:
            raise pytest.UsageError(f"{item.nodeid}: {promise}, expected one of {', '.join(PROMISES)}")
        item.user_properties.append((MARKER, promise))


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    """Reports a figure for the table: the item and the text."""
    return lambda item, figure: record_property(MEASURED, (item, figure))


@pytest.fixture
def add_row(record_property: Callable[[str, object], None]) -> AddRow:
    """Adds a row to a table: the place of the table in the document, and the cells by heading."""
    return lambda place, cells: record_property(ROW, (place, dict(cells)))


@pytest.fixture(scope="session")
def thorough(pytestconfig: pytest.Config) -> bool:
    """Whether to run as many rounds as the catalog states, instead of a quick run."""
    return bool(pytestconfig.getoption("thorough"))


@pytest.fixture
def soak_seconds(pytestconfig: pytest.Config) -> float:
    return float(pytestconfig.getoption("soak_seconds"))


@pytest.fixture
def flood_seconds(pytestconfig: pytest.Config) -> float:
    return float(pytestconfig.getoption("flood_seconds"))
