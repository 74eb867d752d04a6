"""`dragoman bench service` measures one client and many, and the CPU time of the engines."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.report import Report
from benchmarks.served import ServedSentence, read_sentences
from benchmarks.service import Answer, ServicePlan, measure_lone
from dragoman.model.errors import CorpusError
from dragoman.serve.bundle.bundle import Bundle
from tests.support.cases import cases

CASES = cases(__file__)

CPU = min(os.sched_getaffinity(0))
QUICK: dict[str, Any] = CASES["a quick measurement"]
QUICK |= {"server_cpus": (CPU,), "generator_cpus": (CPU,)}
# Two servers and a process of clients.
pytestmark = pytest.mark.usefixtures("forked_servers")


@pytest.fixture(scope="module", name="report")
def _report(toy_bundle: Path) -> Report:
    return ServicePlan.model_validate({"bundle": toy_bundle, **QUICK}).measure()


def rows_of(report: Report, number: int) -> dict[str, dict[str, float]]:
    """Returns the only round of each cell of a table, by row and column."""
    table = report.tables[number]
    columns = {name: column for name, (column,) in table.columns.items()}
    return {row: {name: column[row] for name, column in columns.items() if row in column} for row in table.rows}


def test_one_client_asks_in_every_way_and_is_compared_with_the_engine(report: Report) -> None:
    rows = rows_of(report, 0)
    assert list(rows["a sentence, ms"]) == ["engine", "gRPC", "REST"]
    for name, median in rows["over the engine, ms"].items():
        assert rows["- lower quartile"][name] <= median <= rows["- upper quartile"][name]
    assert "engine" not in rows["over the engine, ms"]


def test_clients_and_server_count_the_same_requests(report: Report) -> None:
    rows = rows_of(report, 1)
    assert list(rows["sentences/s"]) == ["REST", "gRPC", "TranslateMany", "REST, lists of 2"]
    assert min(rows["sentences/s"].values()) > 0
    assert set(rows["failed requests"].values()) == set(rows["uncounted requests"].values()) == {0}


def test_cpu_of_engines_is_part_of_that_of_the_process(report: Report) -> None:
    rows = rows_of(report, 1)
    for interface in rows["CPU in engines, %"]:
        engines, outside = rows["CPU in engines, %"][interface], rows["CPU outside the engines, %"][interface]
        assert 0 <= engines <= 100
        assert engines + outside == pytest.approx(100)
        assert 1 <= rows["rows of a decoder step"][interface] <= 4


@pytest.mark.parametrize(("change", "reason"), CASES["invalid input is reported first"])
def test_invalid_input_is_reported_first(toy_bundle: Path, tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    (tmp_path / "pairs.de-en.tsv").write_text("wort\tword\n", encoding="utf-8")
    (tmp_path / "long.en-de.tsv").write_text(f"{'bird ' * 99}\tx\n", encoding="utf-8")
    change = {name: item.format(folder=tmp_path) if name == "data" else item for name, item in change.items()}
    with pytest.raises(CorpusError, match=reason):
        ServicePlan.model_validate({"bundle": toy_bundle, **QUICK, **change}).measure()


def test_texts_that_the_server_would_segment_are_left_out(toy_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.en-de.tsv").write_text("bird\tx\nbird boat. Moon bread.\tx\nmoon\tx\n", encoding="utf-8")
    sentences = read_sentences(Bundle.open(toy_bundle), f"tsv:{tmp_path / 'pairs.en-de.tsv'}").sentences
    assert [sentence.text for sentence in sentences] == ["bird", "moon"]


def test_without_data_the_golden_sentences_in_the_direction_of_the_first_one_are_translated(toy_bundle: Path) -> None:
    bundle = Bundle.open(toy_bundle)
    other = bundle.golden[0].model_copy(update={"source_language": "de", "target_language": "en"})
    sentences = read_sentences(replace(bundle, golden=(*bundle.golden, other)), None).sentences
    assert [sentence.text for sentence in sentences] == [sentence.source for sentence in bundle.golden]
    assert [sentence.source.source_ids for sentence in sentences] == [sentence.source_ids for sentence in bundle.golden]


class SlowClient:
    """Takes a time that depends on the sentence, plus a constant, on a clock that all clients share."""

    now_ns = 0

    def __init__(self, more_ms: int, answer: str = "ja") -> None:
        self._more_ms = more_ms
        self._answer = answer

    def __call__(self, sentence: ServedSentence) -> Answer:
        SlowClient.now_ns += (len(sentence.text) + self._more_ms) * 1_000_000
        return lambda: self._answer


@pytest.fixture(name="sentences")
def _sentences(toy_bundle: Path) -> list[ServedSentence]:
    return list(read_sentences(Bundle.open(toy_bundle), None).sentences[:5])


def test_times_are_compared_sentence_by_sentence(sentences: list[ServedSentence]) -> None:
    """The times of sentences differ; the overhead of an interface is constant."""
    assert len({len(sentence.text) for sentence in sentences}) > 1
    clients = {"engine": SlowClient(0), "gRPC": SlowClient(1), "REST": SlowClient(3)}
    found = measure_lone(clients, sentences, 2, lambda: SlowClient.now_ns)
    median = float(np.median([len(sentence.text) for sentence in sentences]))
    assert found["engine"] == [{"a sentence, ms": median}] * 2
    for name, over in (("gRPC", 1), ("REST", 3)):
        assert [list(result.values()) for result in found[name]] == [[median + over, over, over, over]] * 2


def test_a_translation_that_differs_from_the_engine_is_reported(sentences: list[ServedSentence]) -> None:
    clients = {"engine": SlowClient(0), "REST": SlowClient(1, answer="nein")}
    with pytest.raises(BenchmarkError, match=r"^REST: .*: nein: expected ja"):
        measure_lone(clients, sentences, 1, lambda: SlowClient.now_ns)
