"""Report pages: one or several documents, in a single file that loads no other file."""

import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import dragoman
from loadtest.results import (
    CapacityResult,
    CurvePoint,
    LoadDocument,
    Point,
    RequestsResult,
    RunResult,
    ServerPhase,
    ServerPoint,
    ServerResult,
    from_json,
    to_json,
)
from loadtest.tally import Percentiles

PERCENTILES = Percentiles(0.01, 0.02, 0.03, 0.04, 0.05)
REQUESTS = RequestsResult(11, 10, 9, 0, {"<429> queue_full": 1}, PERCENTILES, None, PERCENTILES)
RUN = RunResult(
    name="steady",
    loop="open",
    users=None,
    seconds=2.0,
    windows=(1, 1),
    stable=None,
    offered_per_second=5.5,
    requests_per_second=5.0,
    texts_per_second=5.0,
    goodput_per_second=4.5,
    all=REQUESTS,
    kinds={"requests": REQUESTS},
    points=[Point(0.5, 5.0, 5.0, 0.0, 0.01, 0.02), Point(1.5, 6.0, 5.0, 1.0, None, None)],
    curve=[(0.0, 0.01), (50.0, 0.01), (100.0, 0.05)],
    server=ServerResult(32, [ServerPoint(1.0, 3, 0, 2.5)], {"queue": ServerPhase(10, 0.5)}, 1.0, 1000),
    void=None,
)
CAPACITY_POINT = CurvePoint(5.0, 5.0, 5.0, PERCENTILES, 0.0, None)
DOCUMENT = LoadDocument(
    command="dragoman load --out x",
    machine="a machine",
    versions="Python 3.11",
    date="2026-01-01",
    settings={"rate": 5.5},
    sentences={"sentences": 10, "words_p50": 9, "words_p90": 12, "words_max": 20},
    runs=[RUN],
    capacity=None,
    void=False,
)
SEARCHED = replace(
    DOCUMENT, runs=[], capacity=CapacityResult("p99 <= 300 ms", 0.3, 5.0, [CAPACITY_POINT], [CAPACITY_POINT] * 2)
)


def compare(monkeypatch: pytest.MonkeyPatch, folder: Path, documents: Sequence[LoadDocument]) -> str:
    """Writes documents, compares them with the command and returns its page."""
    paths = []
    for number, document in enumerate(documents):
        path = folder / f"report{number}" / "load.json"
        path.parent.mkdir()
        path.write_bytes(to_json(document))
        paths.append(str(path))
    page = folder / "page.html"
    monkeypatch.setattr(sys, "argv", ["dragoman", "load", "report", *paths, "--out", str(page)])
    dragoman.main()
    return page.read_text()


def test_a_document_survives_a_json_round_trip() -> None:
    assert from_json(to_json(DOCUMENT)) == DOCUMENT
    assert from_json(to_json(SEARCHED)) == SEARCHED


def test_several_reports_are_compared_on_a_self_contained_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    closed = replace(DOCUMENT, runs=[replace(RUN, loop="closed", users=3, server=None)])
    page = compare(monkeypatch, tmp_path, [DOCUMENT, closed, SEARCHED])
    for text in ("report0, steady", "report1, steady", "closed, 3 users", "report2: goodput", "prefers-color-scheme"):
        assert text in page
    assert (page.count("batch occupancy"), page.count("latency over time")) == (1, 2)
    assert "&lt;429&gt; queue_full" in page
    assert "<429>" not in page
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"', page)


def test_void_runs_and_unstable_windows_are_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run = replace(RUN, void="the generator was late", stable=False, server=None)
    page = compare(monkeypatch, tmp_path, [replace(DOCUMENT, runs=[run], void=True)])
    assert "void: the generator was late" in page
    assert page.count('class="bad"') == 2


def test_a_run_without_answers_has_a_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """There is no latency to draw."""
    refused = replace(REQUESTS, ok=0, good=0, errors={"UNAUTHENTICATED": 11}, latency_seconds=None)
    points = [replace(point, p50=None, p99=None) for point in RUN.points]
    run = replace(RUN, all=refused, kinds={"requests": refused}, points=points, curve=[], server=None)
    page = compare(monkeypatch, tmp_path, [replace(DOCUMENT, runs=[run])])
    assert "UNAUTHENTICATED" in page
    assert "latency by percentile" not in page


def test_an_invalid_report_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "load.json"
    path.write_text("{}")
    monkeypatch.setattr(sys, "argv", ["dragoman", "load", "report", str(path)])
    with pytest.raises(SystemExit, match=f"dragoman load report: {re.escape(os.fspath(path))}: "):
        dragoman.main()
