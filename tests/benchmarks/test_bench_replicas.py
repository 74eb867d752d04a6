"""`dragoman bench replicas` measures one and two servers on the same CPUs, and the cost of a million sentences."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import dragoman
from benchmarks.replicas import (
    Layout,
    LayoutResult,
    MillionCost,
    ReplicasResult,
    ReplicasTurn,
    format_replicas,
    median_throughput,
    million_cost,
)
from loadtest.report_files import ReportFiles
from loadtest.server_metrics import ServerState, together
from tests.support.paths import ROOT

CPU = str(min(os.sched_getaffinity(0)))
QUICK = ["--rounds=1", "--seconds=0.3", "--warm-up-seconds=0.1", "--clients=4", "--slots=4", "--replicas=1,2"]
QUICK += [f"--server-cpus={CPU}", f"--generator-cpus={CPU}", "--cpu-hour-price=0.5"]

# Three servers and two processes of clients.
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module", name="report")
def _report(toy_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a report on the toy model; its document lies in it."""
    out = tmp_path_factory.mktemp("report")
    document = out / "document.md"
    document.write_text("<!-- replicas --><!-- /replicas -->", encoding="utf-8")
    dragoman.run("bench replicas", [str(toy_bundle), "--out", str(out), "--document", str(document), *QUICK])
    return out


@pytest.fixture(name="layouts")
def _layouts(report: Path) -> list[dict[str, Any]]:
    figures: dict[str, Any] = json.loads((report / "replicas.json").read_text(encoding="utf-8"))
    layouts: list[dict[str, Any]] = figures["layouts"]
    return layouts


def refusal(*arguments: str) -> str:
    """Returns the error message of a call."""
    with pytest.raises(SystemExit) as ended:
        dragoman.run("bench replicas", [*QUICK, *arguments])
    return str(ended.value.code)


def test_every_replica_is_used_and_all_sentences_are_counted(layouts: list[dict[str, Any]]) -> None:
    assert [each["layout"] for each in layouts] == [
        {"replicas": 1, "engines": 1, "slots": 4},
        {"replicas": 2, "engines": 1, "slots": 2},
    ]
    for each in layouts:
        (turn,) = each["turns"]
        assert len(turn["sentences"]) == each["layout"]["replicas"]
        assert turn["failed"] == {}
        assert 0 < sum(turn["sentences"]) <= turn["answered"] == turn["served"]


def test_a_turn_reports_memory_cpu_and_start(layouts: list[dict[str, Any]]) -> None:
    """Two processes need more memory than one; the CPU time is at most that of one CPU."""
    (one,), (two,) = (each["turns"] for each in layouts)
    assert 0 < one["resident_bytes"] < two["resident_bytes"]
    for turn in (one, two):
        assert turn["ready_seconds"] > 0
        # The counter of a process has steps of 10 ms, and is read a moment before or after the clock.
        assert 0 < turn["cpu_seconds"] < turn["seconds"] + 0.2


def test_the_cost_follows_from_the_throughput(layouts: list[dict[str, Any]]) -> None:
    for each in layouts:
        (turn,) = each["turns"]
        hours = 1e6 / (turn["sentences_per_second"] * 0.7 * 3600)
        assert each["cost"] == pytest.approx({"cpu_hours": hours, "price": hours * 0.5})


def test_the_document_gets_the_table_and_its_provenance(report: Path) -> None:
    text = (report / "document.md").read_text(encoding="utf-8")
    assert (report / "replicas.md").read_text(encoding="utf-8").strip() in text
    assert text.count("Measured by `dragoman bench replicas ") == 1


def test_the_documentation_has_a_section_for_the_table(tmp_path: Path) -> None:
    ReportFiles("replicas", tmp_path, ROOT / "docs" / "measurements" / "replicas.md").prepare()


def test_invalid_input_is_reported_before_measuring(
    toy_bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def problem_of(*arguments: str) -> str:
        return refusal(str(toy_bundle), "--out", str(tmp_path), *arguments)

    assert problem_of("--document", "nowhere.md").startswith("dragoman bench replicas: document: nowhere.md: ")
    assert problem_of("--server-cpus=1023").startswith("dragoman bench replicas: CPUs [1023]: ")
    assert refusal(str(tmp_path), "--out", str(tmp_path)).startswith(
        f"dragoman bench replicas: {tmp_path}/manifest.json"
    )
    assert problem_of("--replicas=2,1") == "2"
    assert "--replicas: Value error, expected different numbers, ascending" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        (2, [Layout(1, 2, 30), Layout(2, 1, 30), Layout(3, 1, 20)]),
        (6, [Layout(1, 6, 10), Layout(2, 3, 10), Layout(3, 2, 10)]),
    ],
)
def test_there_is_one_engine_per_cpu_and_the_same_total_of_slots(cpus: int, expected: list[Layout]) -> None:
    """Each replica has at least one engine, so that more replicas than CPUs have more threads."""
    found = [Layout.of(replicas, cpus=cpus, slots=60) for replicas in (1, 2, 3)]
    assert found == expected
    assert [each.all_slots for each in found] == [60, 60, 60]
    assert [each.threads for each in found] == [max(cpus, replicas) for replicas in (1, 2, 3)]


def test_slots_are_rounded_down_to_equal_shares() -> None:
    assert Layout.of(3, cpus=2, slots=64).all_slots == 63
    assert Layout.of(3, cpus=2, slots=1).all_slots == 3


def test_the_cost_of_a_million_sentences_is_that_of_the_cpus_meanwhile() -> None:
    """At 100 sentences a second, half of the time idle, a million take 20,000 seconds of two CPUs."""
    found = million_cost(100.0, cpus=2, utilization=0.5, cpu_hour_price=0.09)
    assert found.cpu_hours == pytest.approx(2 * 20_000 / 3600)
    assert found.price == pytest.approx(1.0)
    assert million_cost(100.0, cpus=2, utilization=0.5, cpu_hour_price=None).price is None


def turn(sentences: list[int]) -> ReplicasTurn:
    """A turn of ten seconds."""
    answered = sum(sentences)
    return ReplicasTurn(2.0, 10.0, sentences, answered / 10, 8.0, 15.0, 300 << 20, answered, answered, {"UNKNOWN": 1})


def test_the_table_compares_rounds_with_the_first_number_of_replicas() -> None:
    one = [turn([1000]), turn([2000]), turn([1000])]
    two = [turn([500, 1000]), turn([1000, 1000]), turn([300, 500])]
    assert median_throughput(one) == 100.0
    result = ReplicasResult(
        "toy",
        "en-de",
        "int8",
        clients=4,
        sentences=10,
        cpus=2,
        clients_share=True,
        utilization=0.5,
        layouts=[
            LayoutResult(Layout(1, 2, 2), one, MillionCost(12.0, 0.6)),
            LayoutResult(Layout(3, 1, 1), two, MillionCost(6.0, 0.3)),
        ],
    )
    table = format_replicas(result)
    lines = [line.split("|") for line in table.splitlines() if line.startswith("|")]
    rows = {cells[1].strip(): [cell.strip() for cell in cells[2:-1]] for cells in lines}
    assert rows["on the same CPUs"] == ["1 replica", "3 replicas"]
    assert rows["engine threads in all"] == ["2", "3"]
    assert rows["slots in all"] == ["4", "3"]
    assert rows["sentences/s"] == ["100 (100-200)", "150 (80-200)"]
    assert rows["times 1 replica"] == ["", "1.00x (0.80-1.50)"]
    assert rows["the least asked replica's share"][1] == "38% (33%-50%)"
    assert rows["resident memory, MiB"][0] == "300 (300-300)"
    assert rows["requests that failed"] == ["3", "3"]
    assert rows["price of a million sentences"] == ["0.6", "0.3"]
    assert "2, shared with the clients" in table


def test_the_states_of_servers_are_added_up() -> None:
    def state(rows: int, requests: dict[str, int]) -> ServerState:
        return ServerState(rows, 8, 1, 2, requests, {"a": 0.5}, {"a": 4.0}, 1.5, 1000, 7)

    found = together([state(3, {"ok": 1}), state(4, {"ok": 2, "late": 5})])
    assert found == ServerState(7, 16, 2, 4, {"ok": 3, "late": 5}, {"a": 1.0}, {"a": 8.0}, 3.0, 2000, 14)
