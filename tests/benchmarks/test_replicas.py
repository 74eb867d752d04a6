"""`dragoman bench replicas` measures one and two servers on the same CPUs, and the cost of a million sentences."""

import os
from pathlib import Path

import pytest

from benchmarks.harness.report import Report
from benchmarks.replicas import Layout, ReplicasPlan, million_cost
from benchmarks.served import Reading, figures_between
from dragoman.loadtest.server_metrics import ServerState, together

CPU = min(os.sched_getaffinity(0))
QUICK = {"rounds": 1, "seconds": 0.3, "warm_up_seconds": 0.1, "clients": 4, "slots": 4, "replicas": (1, 2)}
QUICK |= {"server_cpus": (CPU,), "generator_cpus": (CPU,), "cpu_hour_price": 0.5}
# Three servers and two processes of clients.
pytestmark = pytest.mark.usefixtures("forked_servers")


@pytest.fixture(scope="module", name="report")
def _report(toy_bundle: Path) -> Report:
    return ReplicasPlan.model_validate({"bundle": toy_bundle, **QUICK}).measure()


@pytest.fixture(name="rows")
def _rows(report: Report) -> dict[str, list[float]]:
    """The figures of one replica and of two, by row."""
    (table,) = report.tables
    return {row: [figure for column in table.columns for figure in table.figures(row, column)] for row in table.rows}


def test_every_replica_is_used_and_all_sentences_are_counted(report: Report, rows: dict[str, list[float]]) -> None:
    assert "shared with the clients" in report.tables[0].text
    assert list(report.tables[0].columns) == ["1 replica", "2 replicas"]
    assert rows["engine threads in all"] == [1, 2]
    assert rows["slots in all"] == [4, 4]
    assert rows["failed requests"] == rows["uncounted requests"] == [0, 0]
    (two,) = rows["share of the least busy server, %"]
    assert 0 < two <= 50


def test_the_cpu_time_is_that_of_all_servers_between_two_readings() -> None:
    first, last = (
        Reading(seconds, answered, ServerState({"process_cpu_seconds_total": cpu_seconds}), cpu_seconds / 2)
        for seconds, answered, cpu_seconds in ((10.0, [5, 5], 2.0), (14.0, [25, 45], 5.0))
    )
    figures = figures_between(first, last)
    assert figures["CPUs used"] == 3 / 4
    assert figures["CPU in engines, %"] == 50
    assert figures["CPU of a sentence, ms"] == 3000 / 60
    assert figures["sentences/s"] == 60 / 4
    assert figures["share of the least busy server, %"] == pytest.approx(100 / 3)


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
    assert [result.figures["slots in all"] for result in found] == [60, 60, 60]


@pytest.mark.parametrize(("slots", "expected"), [(64, 63), (1, 3)])
def test_slots_are_rounded_down_to_equal_shares(slots: int, expected: int) -> None:
    assert Layout.of(3, cpus=2, slots=slots).figures["slots in all"] == expected


def test_the_cost_of_a_million_sentences_is_that_of_the_cpus_meanwhile() -> None:
    """At 100 sentences a second, half of the time idle, a million take 20,000 seconds of two CPUs."""
    plan = ReplicasPlan(bundle=Path("bundle"), utilization=0.5, cpu_hour_price=0.09)
    assert list(million_cost(100.0, plan).values()) == pytest.approx([2 * 20_000 / 3600, 1.0])
    without = plan.model_copy(update={"cpu_hour_price": None})
    assert list(million_cost(100.0, without)) == ["CPU-hours of a million sentences"]


def test_the_states_of_servers_are_added_up() -> None:
    found = together([ServerState({"rows": 3, "ok": 1}), ServerState({"rows": 4, "ok": 2, "late": 5})])
    assert found == ServerState({"rows": 7, "ok": 3, "late": 5})
