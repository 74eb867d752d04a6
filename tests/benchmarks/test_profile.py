"""Spans of steps become the times of phases, and a profile of ONNX Runtime becomes times of nodes."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.report import Table
from benchmarks.profile import NodeTime, ProfilePlan, middle_mean, phase_times_us, read_profile
from benchmarks.systems.engine import Span, gaps_us
from serve.bundle.bundle import Bundle
from serve.native.library import library_path

# Two steps: the first admits and prefills, the second only decodes. Nanoseconds.
STEPS = [
    Span("_admit", 0, 1_000, 1_000),
    Span("encoder", 2_000, 6_000, 4_000),
    Span("_prefill", 1_000, 7_000, 2_000),
    Span("decoder", 7_000, 17_000, 10_000),
    Span("topk", 18_000, 20_000, 2_000),
    Span("topk", 20_000, 21_000, 1_000),
    Span("_select", 17_000, 21_000, 1_000),
    Span("step", 0, 22_000, 1_000),
    Span("_admit", 30_000, 33_000, 3_000),
    Span("decoder", 33_000, 43_000, 10_000),
    Span("step", 30_000, 45_000, 2_000),
]


def test_phases_come_in_the_order_of_a_step_with_one_time_per_step_that_has_them() -> None:
    expected = {"_admit": [1, 3], "encoder": [4], "_prefill": [2], "decoder": [10, 10], "topk": [3], "_select": [1]}
    found = phase_times_us(STEPS)
    assert found == {**expected, "step": [1, 2]}
    assert list(found) == [*expected, "step"]


def test_a_gap_excludes_other_runs_and_includes_time_between_steps() -> None:
    assert gaps_us(STEPS) == [13.0]


def node(index: int, name: str, operator: str, at: int, microseconds: int) -> dict[str, Any]:
    shape = [{"float": [2, 3]}, {"int64": [4]}]
    arguments = {"node_index": str(index), "op_name": operator, "output_type_shape": shape}
    return {"name": f"{name}_kernel_time", "ph": "X", "ts": at, "dur": microseconds, "args": arguments}


def session(name: str, at: int, microseconds: int) -> dict[str, Any]:
    return {"name": name, "ph": "X", "ts": at, "dur": microseconds, "args": {}}


def run(at: int, *, slower: int = 1) -> list[dict[str, Any]]:
    """Returns the events of a run as they are written: nodes before the run that holds them."""
    return [
        node(0, "a", "Add", at + 1, 2 * slower),
        node(1, "", "MatMul", at + 4, 10 * slower),
        session("SequentialExecutor::Execute", at, 20 * slower),
        session("model_run", at, 22 * slower),
    ]


@pytest.mark.parametrize("runs", [1, 4])
def test_only_the_last_runs_of_a_profile_count_and_the_slowest_nodes_come_first(runs: int, tmp_path: Path) -> None:
    events = [session("model_loading_uri", 0, 7), *run(100, slower=50)]
    events += [event for number in range(4) for event in run(2000 + 100 * number)]
    (tmp_path / "profile.json").write_text(json.dumps(events), encoding="utf-8")
    nodes, between_us = read_profile(tmp_path / "profile.json", runs)
    assert nodes == [NodeTime("", "MatMul", "x 3", 10), NodeTime("a", "Add", "x 3", 2)]
    assert between_us == 8


@pytest.mark.parametrize(("times", "mean"), [([3], 3), ([1, 2], 1.5), ([900, 2, 3, 0], 2.5), ([5, 1, 9, 2, 3], 10 / 3)])
def test_the_middle_mean_leaves_out_a_quarter_at_each_end(times: list[float], mean: float) -> None:
    assert middle_mean(times) == pytest.approx(mean)


def plan_of(bundle: Bundle, **fields: Any) -> ProfilePlan:
    quick = {"steps": 12, "source_tokens": 7, "target_tokens": 5, "rounds": 2, "rows": [2, 6], "beam_size": 2}
    return ProfilePlan.model_validate({"bundle": bundle.folder, **quick, **fields})


# Runs of the search and operators of the decoder, by bundle.
PARTS: dict[str, tuple[set[str], set[str]]] = {
    "int8_bundle": (set(), {"Step"}),
    "states_bundle": ({"select: log-probabilities run", "select: top-k run"}, {"MatMul", "GroupQueryAttention"}),
}


@pytest.fixture(scope="module", name="kind", params=PARTS)
def _kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", name="tables")
def _tables(kind: str, request: pytest.FixtureRequest) -> dict[str, Table]:
    """The tables of beams of two in steps of two and six rows."""
    return {table.name: table for table in plan_of(request.getfixturevalue(kind), heaviest=3).measure().tables}


def figures(table: Table, column: str) -> dict[str, list[float]]:
    return {row: found for row in table.rows if (found := table.figures(row, column))}


@pytest.mark.parametrize("column", ["2 rows", "6 rows"])
def test_every_phase_of_a_beam_and_every_operator_is_measured_in_every_round(
    column: str, kind: str, tables: dict[str, Table]
) -> None:
    shares = figures(tables["phase: % of the time"], column)
    runs, nodes = PARTS[kind]
    assert {"admit", "prefill: encoder run", "decode: decoder run", *runs, "retire", "rest"} < set(shares)
    operators = figures(tables["operator of the decoder: % of the nodes"], column)
    assert nodes <= set(operators)
    for found in (shares, operators):
        assert [sum(rounds) for rounds in zip(*found.values(), strict=False)] == pytest.approx([100, 100], abs=10)


def test_the_phases_of_a_native_engine_make_up_its_time(kind: str, tables: dict[str, Table]) -> None:
    name = "phase of the native engine: % of the time"
    assert (name in tables) == (kind == "int8_bundle" and library_path() is not None)
    if name in tables:
        shares = figures(tables[name], "6 rows")
        assert list(shares) == ["encode", "step", "search", "rest"]
        assert all(share > 0 for rounds in shares.values() for share in rounds)
        assert [sum(rounds) for rounds in zip(*shares.values(), strict=True)] == pytest.approx([100, 100])


def test_a_steady_load_starts_a_sequence_whenever_one_ends(tables: dict[str, Table]) -> None:
    """One sequence of five target tokens ends at every fifth step, three at three of five."""
    for column, share in (("2 rows", 20), ("6 rows", 60)):
        found = figures(tables["phase: % of the steps have it"], column)["prefill: encoder run"]
        assert found == pytest.approx([share, share], abs=100 / 12)


def test_the_heaviest_nodes_are_listed(kind: str, tables: dict[str, Table]) -> None:
    """Rounds may differ in which ones are the heaviest."""
    assert len(figures(tables["heaviest nodes: us per step"], "6 rows")) >= (1 if kind == "int8_bundle" else 3)


@pytest.mark.parametrize("field", ["source_tokens", "target_tokens"])
def test_more_tokens_than_the_model_allows_are_rejected(int8_bundle: Bundle, field: str) -> None:
    with pytest.raises(BenchmarkError, match=f"^{field}: expected at most .* got 10000"):
        plan_of(int8_bundle, **{field: 10_000}).measure()


def test_rows_that_are_no_multiple_of_the_beam_size_are_rejected(int8_bundle: Bundle) -> None:
    with pytest.raises(BenchmarkError, match=r"^rows: .* got 5"):
        plan_of(int8_bundle, rows=[4, 5]).measure()
