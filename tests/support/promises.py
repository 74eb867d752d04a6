"""What tests show of the promises in docs/reliability.md, as a table that the tests fill in themselves.

A test that shows a promise has the marker `promise(item)`, and reports what it measured with the fixture `measured`.
`pytest tests -m promise --promises docs/reliability.md` writes the table, if no test failed. Both travel with the
reports of tests, so that it makes no difference how many processes run them. Registered by tests/conftest.py.
"""

import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from model.provenance import MarkError, Provenance, fill

# What readers are told of each item of the catalog that tests show.
PROMISES = {
    "R1": "A translation and its scores are bitwise the same alone and in any company.",
    "R2": "Whoever joins and leaves at whatever step, nobody else's answer changes.",
    "R3": "The served graphs translate as the PyTorch model does.",
    "R4": "A text that breaks the model's numbers, or never ends, changes nobody else's answer.",
    "R5": "A short text leaves after its own steps, however long those beside it are.",
    "R6": "No slot is idle while something waits that fits.",
    "R8": "Exactly as many are let in as there is room for; everybody else is refused at once.",
    "R9": "Nothing of a text is looked at before there is room for it, and what is let in is never refused later for "
    "want of room.",
    "R10": "Twice the load that can be borne answers as much in time as that load does.",
    "R11": "After overload all is soon as before, and nothing starts that comes too late.",
    "R12": "Refusing is cheap: what is too much does not take the time of what was let in.",
    "R13": "A refusal says when to come back, and gRPC's own client obeys.",
    "R14": "A caller with fifty texts does not make those with one text wait for all of them.",
    "R15": "A deadline that cannot be met is refused before anything runs.",
    "R16": "A deadline that passes in the queue is told at once, whatever the slots do.",
    "R17": "A deadline that passes, or a client that cancels, frees the slot with the step that is under way.",
    "R18": "A client that goes away frees its slots and its places in the queue with the step that is under way.",
    "R19": "However many clients go away at whatever moment, nothing is lost, held or counted twice.",
    "R20": "Whatever happens at whatever point of a request, it gets one answer, and none waits for ever.",
    "R21": "A client passes on the time that is left to it, and gives up when there is none.",
    "R22": "SIGTERM fails nothing that was accepted: it is answered, and the process ends with status 0.",
    "R23": "A lame duck is not ready, but live, and serves everybody who still comes.",
    "R24": "Replicas restart one after the other, and clients that try nothing twice do not notice.",
    "R25": "When the time to drain is over, what is left is told so, not cut off; neither a model that hangs nor a "
    "second signal waits for it.",
    "R26": "SIGTERM ends a server that loads, warms up, reloads or has idle connections, with status 0 within 5 s.",
    "R27": "Before the model is proven every request is told so, and afterwards the first is as quick as any.",
    "R28": "A model that is not the one that was exported never serves, and the message names what is wrong.",
    "R29": "A model that fails or hangs closes the service until it is well, and only what it was computing is lost.",
    "R30": "Memory, files and threads stay as they are.",
    "R31": "What is no request is refused in words that name the field, and the server goes on.",
    "R33": "Whatever is sent is counted once, in counters and histograms alike, and gauges return to 0.",
    "R35": "Under everything at once, no request has an outcome that it does not deserve.",
    "R36": "A replica that is killed costs no request of clients that try again.",
    "R37": "A replica that hangs is left out; only what it had been asked before is late.",
}
# In place of a document.
TERMINAL = Path("-")
MARKER = "promise"
MEASURED = "measured"
PLACE = "promises"
HEADING = ("item", "promise", "measured", "tests")
LIBRARIES = ("onnxruntime", "grpcio", "uvicorn", "pytest")

Measured = Callable[[str, str], None]


@dataclass
class Shown:
    """What tests have shown of one promise.

    Attributes:
        tests: how many of each file.
        figures: what they measured, by the name of the test.
    """

    tests: Counter[str] = field(default_factory=Counter)
    figures: dict[str, list[str]] = field(default_factory=dict)

    @property
    def cells(self) -> tuple[str, str]:
        """The figures, each once and in the order of the tests, and the files."""
        figures = dict.fromkeys(figure for _, figures in sorted(self.figures.items()) for figure in figures)
        files = ", ".join(f"{count} in {file}" for file, count in sorted(self.tests.items()))
        return "<br>".join(figures) or "holds", files


class PromiseTable:
    """Listens to reports, and writes the table in the end. Lives in the process that hears of all tests."""

    def __init__(self, document: Path, command: str) -> None:
        """Looks for the place of the table, before minutes of testing.

        Args:
            document: with the place of the table; `TERMINAL`: none, it is printed.
            command: that fills it in.

        Raises:
            pytest.UsageError: if there is no such place.
        """
        self._document = document
        self._command = command
        self._shown: dict[str, Shown] = {}
        self._filled("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Takes down what a test has shown that passed."""
        if report.when != "call" or not report.passed:
            return
        file = report.nodeid.partition("::")[0]
        for item in _values(report, MARKER):
            shown = self._shown.setdefault(item, Shown())
            shown.tests[file] += 1
            shown.figures[report.nodeid] = [figure for of, figure in _values(report, MEASURED) if of == item]

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Writes the table if every test passed: a document tells no half of it."""
        if exitstatus == pytest.ExitCode.OK and self._document != TERMINAL:
            self._document.write_text(self._filled(self.table()), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Prints the table if there is no document."""
        if self._document == TERMINAL:
            terminalreporter.write_line(self.table())

    def table(self) -> str:
        """Returns the table, and under which conditions its figures were obtained."""
        items = sorted(self._shown, key=lambda item: int(item.removeprefix("R")))
        rows = [[_cell(text) for text in (item, PROMISES[item], *self._shown[item].cells)] for item in items]
        provenance = Provenance.now(self._command, LIBRARIES, "threads of each engine: 1")
        lines = [HEADING, ["---"] * len(HEADING), *rows]
        return "\n".join(f"| {' | '.join(cells)} |" for cells in lines) + f"\n\n{provenance}"

    def _filled(self, content: str) -> str:
        if self._document == TERMINAL:
            return ""
        try:
            return fill(self._document.read_text(encoding="utf-8"), PLACE, content)
        except (OSError, MarkError) as error:
            raise pytest.UsageError(f"--promises: {self._document}: {error}") from error


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _values(report: pytest.TestReport, name: str) -> list[Any]:
    """Returns what properties of a name a test has."""
    return [value for each, value in report.user_properties if each == name]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("promises of reliability")
    group.addoption("--promises", type=Path, metavar="DOCUMENT", help="fill in the table of a document; -: print it")
    group.addoption("--thorough", action="store_true", help="test promises as often as docs/reliability.md says")
    group.addoption("--soak-seconds", type=float, default=2.0, help="how long the mixed load lasts")


def pytest_configure(config: pytest.Config) -> None:
    """Registers the marker, and the table where it is asked for."""
    config.addinivalue_line("markers", f"{MARKER}(item): shows an item of docs/reliability.md")
    document: Path | None = config.getoption("promises")
    if document is not None and not hasattr(config, "workerinput"):
        command = shlex.join(["pytest", *config.invocation_params.args])
        config.pluginmanager.register(PromiseTable(document, command), PLACE)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Lets the markers of a test travel with its reports."""
    for marker in item.iter_markers(MARKER):
        (promise,) = marker.args
        if promise not in PROMISES:
            raise pytest.UsageError(f"{item.nodeid}: {promise}, expected one of {', '.join(PROMISES)}")
        item.user_properties.append((MARKER, promise))


@pytest.fixture
def measured(record_property: Callable[[str, object], None]) -> Measured:
    """Reports a figure for the table: the item, and what was measured."""
    return lambda item, figure: record_property(MEASURED, (item, figure))


@pytest.fixture
def thorough(pytestconfig: pytest.Config) -> bool:
    """Whether to test as often as the catalog says, or only as often as a quick run can."""
    asked: bool = pytestconfig.getoption("thorough")
    return asked


@pytest.fixture
def soak_seconds(pytestconfig: pytest.Config) -> float:
    """How long a mixed load lasts."""
    seconds: float = pytestconfig.getoption("soak_seconds")
    return seconds
