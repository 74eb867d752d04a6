"""Report pages: one or several documents, in a single file that loads no other file."""

import os
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dragoman import command_line
from dragoman.loadtest import results
from dragoman.loadtest.results import DOCUMENTS, LoadDocument, Point, RequestsResult, RunResult, ServerPoint
from dragoman.loadtest.samples import PercentilePoint, Percentiles
from dragoman.loadtest.scenario import PoissonPhase, Scenario
from dragoman.loadtest.server_metrics import PhaseTime
from dragoman.model.provenance import Provenance

PERCENTILES = Percentiles(0.01, 0.02, 0.03, 0.04, 0.05)
REQUESTS = RequestsResult(11, 10, 9, 0, {"<429> queue_full": 1}, PERCENTILES, None, PERCENTILES)
RUN = RunResult(
    name="steady",
    users=None,
    seconds=2.0,
    offered_per_second=5.5,
    requests_per_second=5.0,
    texts_per_second=5.0,
    goodput_per_second=4.5,
    meets_objective=True,
    all=REQUESTS,
    kinds={"requests": REQUESTS},
    points=[Point(0.5, 5.0, 5.0, 0.0, 0.01, 0.02), Point(1.5, 6.0, 5.0, 1.0, None, None)],
    curve=[PercentilePoint(0.0, 0.01), PercentilePoint(50.0, 0.01), PercentilePoint(100.0, 0.05)],
    server=results.ServerResult(32, [ServerPoint(1.0, 3, 0, 2.5)], {"queue": PhaseTime(10, 0.5)}, 1.0, 1000),
    void=None,
)
DOCUMENT = LoadDocument(
    provenance=Provenance("dragoman load --out x", "a machine", "Python 3.11", "2026-01-01"),
    settings={"rate": 5.5},
    scenario=Scenario(phases=(PoissonPhase(),)),
    sentences={"sentences": 10, "words_p50": 9, "words_p90": 12, "words_max": 20},
    runs=[RUN],
    capacity=None,
    void=False,
)
CURVE = [RUN]
SEARCHED = replace(DOCUMENT, runs=[], capacity=results.CapacityResult("p99 <= 300 ms", 0.3, 5.0, CURVE, CURVE * 2))


@pytest.fixture(name="folder")
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def compare(monkeypatch: pytest.MonkeyPatch, *documents: LoadDocument) -> str:
    """Writes documents, compares them with the command and returns its page without the library."""
    paths = []
    for number, document in enumerate(documents):
        path = Path(f"report{number}") / "load.json"
        path.parent.mkdir()
        path.write_bytes(DOCUMENTS.dump_json(document))
        paths.append(str(path))
    monkeypatch.setattr(sys, "argv", ["dragoman", "load", "report", *paths])
    command_line.main()
    page = Path("load.html").read_text(encoding="utf-8")
    assert "plotly.js" in page
    assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="', page), "the page must load nothing"
    return re.sub(r"<script[^>]*>/\*\*\n\* plotly.*?</script>", "", page, flags=re.DOTALL)


def test_a_document_survives_a_json_round_trip() -> None:
    for document in (DOCUMENT, SEARCHED):
        assert DOCUMENTS.validate_json(DOCUMENTS.dump_json(document)) == document


@pytest.mark.usefixtures("folder")
def test_several_reports_are_compared_on_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = compare(monkeypatch, DOCUMENT, replace(DOCUMENT, runs=[replace(RUN, users=3, server=None)]), SEARCHED)
    for text in ("report0, steady", "report1, steady", "CLOSED, 3 users", "report2: capacity"):
        assert text in page
    for plot in ("latency over time", "requests over time", "latency by percentile", "batch occupancy", "goodput over"):
        assert page.count(plot) == 1
    assert "&lt;429&gt; queue_full" in page
    assert "<429>" not in page


@pytest.mark.usefixtures("folder")
def test_void_runs_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    page = compare(monkeypatch, replace(DOCUMENT, runs=[replace(RUN, void="the generator was late")], void=True))
    assert re.findall(r'<p class="warning">(.*?)</p>', page)[0].startswith("steady: VOID: the generator was late")


@pytest.mark.usefixtures("folder")
def test_a_run_without_answers_has_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = replace(REQUESTS, ok=0, good=0, errors={"UNAUTHENTICATED": 11}, latency_seconds=None)
    points = [replace(point, p50=None, p99=None) for point in RUN.points]
    run = replace(RUN, all=refused, kinds={"requests": refused}, points=points, curve=[], server=None)
    page = compare(monkeypatch, replace(DOCUMENT, runs=[run]))
    assert "UNAUTHENTICATED" in page
    assert "latency by percentile" not in page


def test_an_invalid_report_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "load.json"
    path.write_text("{}")
    monkeypatch.setattr(sys, "argv", ["dragoman", "load", "report", str(path)])
    with pytest.raises(SystemExit, match=f"dragoman load report: {re.escape(os.fspath(path))}: "):
        command_line.main()
