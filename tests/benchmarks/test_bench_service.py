"""`dragoman bench service` measures one client and many, and validates its input first."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dragoman
from benchmarks.service import measure_overhead
from benchmarks.service_load import (
    Answer,
    LoneClient,
    LoneClientError,
    ServiceSentence,
    engine_client,
    grpc_client,
    read_sentences,
    rest_client,
)
from benchmarks.service_results import (
    BusyResult,
    BusyTurn,
    CpuTimes,
    OverheadResult,
    Quartiles,
    ServiceResult,
    Way,
    WayResult,
    format_service,
)
from loadtest.report_files import ReportFiles
from loadtest.scenario import LoadRequest
from serve.bundle.bundle import Bundle
from tests.support.live import LiveService
from tests.support.paths import ROOT

CPU = str(min(os.sched_getaffinity(0)))
QUICK = ["--rounds=1", "--seconds=0.3", "--warm-up-seconds=0.1", "--clients=4", "--slots=4", "--sentences=4"]
QUICK += [f"--server-cpus={CPU}", f"--generator-cpus={CPU}"]

# Two servers and a process of clients.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", name="report")
def _report(toy_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on the toy model; its document lies in it."""
    out = tmp_path_factory.mktemp("report")
    document = out / "document.md"
    document.write_text("<!-- service --><!-- /service -->", encoding="utf-8")
    dragoman.run("bench service", [str(toy_bundle), "--out", str(out), "--document", str(document), *QUICK])
    return out


@pytest.fixture(name="figures")
def _figures(report: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((report / "service.json").read_text(encoding="utf-8"))
    return figures


@pytest.fixture(name="turns")
def _turns(figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The only turn of every interface."""
    turns = figures["busy"]["turns"]
    assert [len(each) for each in turns.values()] == [1, 1, 1]
    return {interface: each for interface, (each,) in turns.items()}


def refusal(*arguments: str) -> str:
    """Returns the error message of a call."""
    with pytest.raises(SystemExit) as ended:
        dragoman.run("bench service", [*QUICK, *arguments])
    return str(ended.value.code)


def test_one_client_asks_every_way_and_is_compared_with_the_engine(figures: dict[str, Any]) -> None:
    engine, *interfaces = figures["overhead"]["ways"]
    assert figures["overhead"]["sentences"] == 4
    assert (engine["way"], engine["over_engine_ms"]) == ("engine", None)
    assert [each["way"] for each in interfaces] == ["gRPC", "REST"]
    for each in interfaces:
        over = each["over_engine_ms"]
        assert over["low"] <= over["median"] <= over["high"]
        assert each["rounds_ms"] == [over["median"]]


def test_clients_and_server_count_the_same_requests(turns: dict[str, dict[str, Any]]) -> None:
    assert list(turns) == ["gRPC", "REST", "TranslateMany"]
    for turn in turns.values():
        assert turn["failed"] == {}
        assert 0 < turn["sentences"] <= turn["answered"] == turn["served"]


def test_cpu_of_runs_is_part_of_engine_threads_and_that_of_the_process(turns: dict[str, dict[str, Any]]) -> None:
    for turn in turns.values():
        cpu = turn["cpu"]
        assert 0 < cpu["runs"] < cpu["engines"] < cpu["process"]
        assert 1 <= turn["rows_per_step"] <= 4


def test_the_document_gets_the_tables_and_their_provenance(report: Path) -> None:
    text = (report / "document.md").read_text(encoding="utf-8")
    assert (report / "service.md").read_text(encoding="utf-8").strip() in text
    assert text.count("Measured by `dragoman bench service ") == 1


def test_the_documentation_has_a_section_for_the_tables(tmp_path: Path) -> None:
    ReportFiles("service", tmp_path, ROOT / "docs" / "measurements" / "benchmarks.md").prepare()


def test_invalid_input_is_reported_before_measuring(toy_bundle: Path, tmp_path: Path) -> None:
    def problem_of(*arguments: str) -> str:
        return refusal(str(toy_bundle), "--out", str(tmp_path), *arguments)

    assert problem_of("--document", "nowhere.md").startswith("dragoman bench service: document: nowhere.md: ")
    assert problem_of("--words=1").startswith("dragoman bench service: words: 1: ")
    assert refusal(str(tmp_path), "--out", str(tmp_path)).startswith(
        f"dragoman bench service: {tmp_path}/manifest.json"
    )


def test_cpus_that_do_not_exist_are_reported(toy_bundle: Path, tmp_path: Path) -> None:
    problem = refusal(str(toy_bundle), "--out", str(tmp_path), "--generator-cpus=1023")
    assert problem.startswith("dragoman bench service: CPUs [1023]: ")


def test_an_unknown_option_is_rejected_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert refusal(str(tmp_path), "--out", str(tmp_path), "--threads=2") == "2"
    assert "--threads=2" in capsys.readouterr().err


def test_data_of_another_direction_is_rejected(toy_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.de-en.tsv").write_text("wort\tword\n", encoding="utf-8")
    data = f"tsv:{tmp_path / 'pairs.de-en.tsv'}"
    problem = refusal(str(toy_bundle), "--out", str(tmp_path), "--data", data)
    assert problem.startswith(f"dragoman bench service: data: {data}: de-en: ")


def test_texts_that_the_server_would_segment_are_left_out(toy_bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "pairs.en-de.tsv").write_text("bird\tx\nbird boat. Moon bread.\tx\nmoon\tx\n", encoding="utf-8")
    sentences = read_sentences(Bundle.open(toy_bundle), f"tsv:{tmp_path / 'pairs.en-de.tsv'}").sentences
    assert [each.text for each in sentences] == ["bird", "moon"]


def test_without_data_the_golden_sentences_of_the_first_direction_are_translated(toy_bundle: Path) -> None:
    bundle = Bundle.open(toy_bundle)
    other = bundle.golden[0].model_copy(update={"source_language": "de", "target_language": "en"})
    sentences = read_sentences(replace(bundle, golden=(other, *bundle.golden)), None).sentences
    assert [each.text for each in sentences] == [each.source for each in bundle.golden]
    assert [each.source.source_ids for each in sentences] == [each.source_ids for each in bundle.golden]


def test_max_target_ratio_limits_the_translations_of_every_way(toy_server: LiveService, toy_bundle: Path) -> None:
    """An untrained model writes up to the limit."""
    sentences = read_sentences(Bundle.open(toy_bundle), None, max_target_ratio=0.5)
    first = max(sentences.sentences, key=lambda each: len(each.source.source_ids))
    assert first.source.max_target_tokens == len(first.source.source_ids) // 2
    request = LoadRequest((), languages=sentences.languages, options={"max_target_ratio": 0.5})
    with (
        engine_client(toy_bundle, 4, sentences.tokenizer) as engine,
        grpc_client(toy_server.grpc_target, request) as grpc,
        rest_client("127.0.0.1", toy_server.service.http_port, request) as rest,
    ):
        bounded = {client(first)() for client in (engine, grpc, rest)}
    whole = toy_server.post({"text": first.text}).json()["translations"][0]["text"]
    assert bounded != {whole}
    assert len(bounded) == 1


class Clock:
    """A clock that clients advance."""

    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class SlowClient:
    """Takes a time that depends on the sentence, plus a constant."""

    def __init__(self, clock: Clock, more_ms: int, answer: str = "ja") -> None:
        self._clock = clock
        self._more_ms = more_ms
        self._answer = answer

    def __call__(self, sentence: ServiceSentence) -> Answer:
        self._clock.now_ns += (len(sentence.text) + self._more_ms) * 1_000_000
        return lambda: self._answer


@pytest.fixture(name="sentences")
def _sentences(toy_bundle: Path) -> list[ServiceSentence]:
    return list(read_sentences(Bundle.open(toy_bundle), None).sentences[:5])


def test_times_are_compared_sentence_by_sentence(sentences: list[ServiceSentence]) -> None:
    """The times of sentences differ; the overhead of a way is constant."""
    clock = Clock()
    clients: dict[Way, LoneClient] = {
        "engine": SlowClient(clock, 0),
        "gRPC": SlowClient(clock, 1),
        "REST": SlowClient(clock, 3),
    }
    assert len({len(each.text) for each in sentences}) > 1
    result = measure_overhead(clients, sentences, 2, lambda: None, clock)
    assert [each.over_engine_ms for each in result.ways] == [None, Quartiles(1, 1, 1), Quartiles(3, 3, 3)]
    assert [each.rounds_ms for each in result.ways] == [[], [1, 1], [3, 3]]


def test_a_translation_that_differs_from_the_engine_is_reported(sentences: list[ServiceSentence]) -> None:
    clock = Clock()
    clients: dict[Way, LoneClient] = {"engine": SlowClient(clock, 0), "REST": SlowClient(clock, 1, answer="nein")}
    with pytest.raises(LoneClientError, match=r"^REST: .*: nein: expected ja"):
        measure_overhead(clients, sentences, 1, lambda: None, clock)


def test_the_table_reports_whether_the_goals_are_met() -> None:
    engine = WayResult("engine", Quartiles(4, 5, 6), None, [])
    grpc = WayResult("gRPC", Quartiles(5, 6, 7), Quartiles(0.5, 1.5, 2.5), [1.4, 1.6])
    rest = WayResult("REST", Quartiles(5, 8, 9), Quartiles(1.5, 2.5, 3.5), [2.5, 2.5])
    turn = BusyTurn(2.0, 100, 50.0, 8.0, CpuTimes(process=2.0, engines=1.8, runs=1.6), 120, 120, {})
    worse = BusyTurn(2.0, 100, 50.0, 8.0, CpuTimes(process=2.0, engines=1.2, runs=1.0), 120, 120, {})
    busy = BusyResult(4, 10, 8, {"gRPC": [turn], "REST": [turn, worse, worse], "TranslateMany": [worse]})
    table = format_service(ServiceResult("toy", "en-de", "fp32", 1, OverheadResult(10, 2, [engine, grpc, rest]), busy))
    rows = {cells[1].strip(): [cell.strip() for cell in cells[2:-1]] for cells in map(cells_of, table.splitlines())}
    assert rows["over the engine, ms"] == ["", "1.50 (0.50 to 2.50)", "2.50 (1.50 to 3.50)"]
    assert "at most 2 ms over the engine: gRPC met, REST missed." in table
    assert rows["CPU in ONNX Runtime"] == ["80%", "50% (50%-80%)", "50%"]
    assert rows["CPU outside"] == ["20%", "50% (20%-50%)", "50%"]
    assert [rows["- engines' threads"][0], rows["- other threads"][0]] == ["10%", "10%"]
    assert "outside ONNX Runtime: gRPC met, REST missed, TranslateMany missed." in table


def cells_of(line: str) -> list[str]:
    return line.split("|") if line.startswith("|") else ["", line, ""]
