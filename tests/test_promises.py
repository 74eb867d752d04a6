"""The table of promises holds exactly what passed tests show and measure."""

import re
from pathlib import Path

import pytest

from tests.support.promises import PROMISES

pytest_plugins = ("pytester",)

TESTS = """
import pytest

@pytest.mark.promise("R11")
def test_later():
    pass

@pytest.mark.promise("R9")
@pytest.mark.promise("R8")
@pytest.mark.parametrize("seconds", [1, 2])
def test_both(measured, seconds):
    measured("R8", f"{seconds} | s")
    measured("R8", "every time")

@pytest.mark.promise("R8")
@pytest.mark.skip
def test_skipped():
    pass

def test_without_a_promise(measured, add_row):
    measured("R8", "nothing of it")
    add_row("rows", {"name": "a", "figure": "1 | s"})

def test_more_of_it(add_row):
    add_row("rows", {"name": "b", "figure": "2 s"})
"""
# Without unused plugins, the test process starts faster.
PLUGINS = ("-p", "tests.support.promises", "-p", "no:schemathesis", "-p", "no:hypothesispytest")
TEXT = "<!-- rows --><!-- /rows -->\nbefore\n<!-- promises --><!-- /promises -->\nafter\n"


@pytest.fixture
def document(pytester: pytest.Pytester) -> Path:
    """A document with a place for the table, next to tests."""
    pytester.makepyfile(test_things=TESTS)
    document = pytester.path / "document.md"
    document.write_text(TEXT, encoding="utf-8")
    return document


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.ExitCode | int:
    return pytester.runpytest_inprocess(*PLUGINS, "--promises", "document.md", *arguments).ret


@pytest.mark.parametrize("processes", ["0", "1"])
def test_tables_have_passed_tests_figures_and_rows(pytester: pytest.Pytester, document: Path, processes: str) -> None:
    assert run(pytester, "--numprocesses", processes) == pytest.ExitCode.OK
    rows, _, text = document.read_text().partition("before\n")
    mark, *table, provenance, end, after = [line for line in text.splitlines() if line]
    cells = [re.split(r" *(?<!\\)\| *", line.strip("| ")) for line in table]
    assert cells[0] == ["item", "promise", "measured", "tests"]
    assert cells[2:] == [
        ["R8", PROMISES["R8"], r"1 \| s<br>every time<br>2 \| s", "2 in test_things.py"],
        ["R9", PROMISES["R9"], "holds", "2 in test_things.py"],
        ["R11", PROMISES["R11"], "holds", "1 in test_things.py"],
    ]
    assert re.match(r"Measured by `pytest .*--promises \S+.*` \(", provenance)
    assert (mark, end, after) == ("<!-- promises -->", "<!-- /promises -->", "after")
    assert [line for line in rows.splitlines() if line.startswith("|")] == [
        "| name | figure |",
        "| --- | --- |",
        r"| a | 1 \| s |",
        "| b | 2 s |",
    ]


def test_a_failed_test_leaves_the_table_unchanged(pytester: pytest.Pytester, document: Path) -> None:
    pytester.makepyfile(test_more="def test_broken(): assert False")
    assert run(pytester) == pytest.ExitCode.TESTS_FAILED
    assert document.read_text() == TEXT


def test_without_a_document_the_table_is_printed(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_things=TESTS)
    printed = pytester.runpytest_inprocess(*PLUGINS, "--promises", "-").outlines
    assert f"| R11 | {PROMISES['R11']} | holds | 1 in test_things.py |" in printed
