"""The file of ONNX Runtime's profiler as times of nodes and operators."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.profiling import GraphTimes, middle_mean


def node(index: int, name: str, operator: str, at: int, microseconds: int) -> dict[str, Any]:
    shape = [{"float": [2, 3]}, {"int64": [4]}]
    arguments = {"node_index": str(index), "op_name": operator, "output_type_shape": shape}
    return {
        "cat": "Node",
        "name": f"{name}_kernel_time",
        "ph": "X",
        "ts": at,
        "dur": microseconds,
        "args": arguments,
    }


def session(name: str, at: int, microseconds: int) -> dict[str, Any]:
    return {"cat": "Session", "name": name, "ph": "X", "ts": at, "dur": microseconds, "args": {}}


def run(at: int, *, slower: int = 1) -> list[dict[str, Any]]:
    """Returns the events of a run as they are written: nodes before the run that holds them."""
    return [
        node(0, "a", "Add", at + 1, 2 * slower),
        node(1, "", "MatMul", at + 4, 10 * slower),
        node(2, "b", "Add", at + 15, 4 * slower),
        session("SequentialExecutor::Execute", at, 20 * slower),
        session("model_run", at, 22 * slower),
    ]


@pytest.fixture(name="path")
def _path(tmp_path: Path) -> Path:
    """The profile of a slow first run and four other runs."""
    events = [session("model_loading_uri", 0, 7), *run(100, slower=50)]
    events += [event for number in range(4) for event in run(2000 + 100 * number)]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    return path


def test_the_slowest_nodes_come_first_with_their_share(path: Path) -> None:
    nodes = GraphTimes.read(path, runs=4).nodes
    assert [(each.name, each.operator, each.microseconds) for each in nodes] == [
        ("", "MatMul", 10),
        ("b", "Add", 4),
        ("a", "Add", 2),
    ]
    assert [each.share for each in nodes] == [10 / 16, 4 / 16, 2 / 16]
    assert {each.output for each in nodes} == {"2 x 3"}


def test_nodes_of_one_type_are_added_up(path: Path) -> None:
    matmul, add = GraphTimes.read(path, runs=4).operators
    assert (matmul.operator, matmul.nodes, matmul.microseconds, matmul.share) == ("MatMul", 1, 10, 10 / 16)
    assert (add.operator, add.nodes, add.microseconds, add.share) == ("Add", 2, 6, 6 / 16)


def test_the_time_between_nodes_is_reported(path: Path) -> None:
    assert GraphTimes.read(path, runs=4).between_microseconds == 4


def test_only_the_last_runs_count(path: Path) -> None:
    assert GraphTimes.read(path, runs=1) == GraphTimes.read(path, runs=4)


@pytest.mark.parametrize(("times", "mean"), [([3], 3), ([1, 2], 1.5), ([900, 2, 3, 0], 2.5), ([5, 1, 9, 2, 3], 10 / 3)])
def test_the_middle_mean_leaves_out_a_quarter_at_each_end(times: list[float], mean: float) -> None:
    assert middle_mean(times) == pytest.approx(mean)
