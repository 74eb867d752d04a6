"""Tiers of tests: what a test needs, and how many seconds each tier took.

A test belongs to the tier of its marker (`gpu`, `browser`, `database`, `reliability`) and otherwise to `fast`.
Tests in the folder `tests/reliability` and tests that show a promise get the marker `reliability`.
`pytest -m TIER` runs one tier.

The files that take longest come first: with several processes, none of them is left to run one alone at the end.
"""

from collections import Counter, defaultdict
from collections.abc import Container

import pytest

from tests.support.cases import cases

CASES = cases(__file__)

# The first that fits counts.
MARKERS = ("gpu", "browser", "database", "reliability")
FAST = "fast"
TIERS = (FAST, *reversed(MARKERS))
RELIABILITY_FOLDER = "tests/reliability/"
# Files of more than ten seconds, the longest first.
LONG_FILES = tuple(f"tests/{name}" for name in CASES["files of more than ten seconds"])

seconds: defaultdict[str, float] = defaultdict(float)
counts: Counter[str] = Counter()


def tier_of(keywords: Container[str]) -> str:
    """Returns the tier of a test with these keywords, which include its markers."""
    return next((name for name in MARKERS if name in keywords), FAST)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of the tier `reliability`, and `fast` those of no other tier; puts long files first."""
    for item in items:
        if item.nodeid.startswith(RELIABILITY_FOLDER) or item.get_closest_marker("promise"):
            item.add_marker("reliability")
        if tier_of({mark.name for mark in item.iter_markers()}) == FAST:
            item.add_marker(FAST)
    places = {file: place for place, file in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.nodeid.partition("::")[0], len(places)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Adds up the seconds of set-up, call and teardown; with several processes, in the one that reports."""
    tier = tier_of(report.keywords)
    seconds[tier] += report.duration
    counts[tier] += report.when == "call"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for tier in TIERS:
        if counts[tier]:
            terminalreporter.write_line(f"tier {tier}: {counts[tier]} tests, {seconds[tier]:.0f} s of test time")
