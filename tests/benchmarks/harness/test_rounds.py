"""Each round starts every system anew, then all take turns at each task; each round begins with another system."""

from pathlib import Path

import pytest

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.process import Launch
from benchmarks.harness.rounds import measure_rounds, play

TASKS = {"few": {"tokens": 1}, "many": {"tokens": 9}}


def make_systems(log: Path, tasks: dict[str, dict[str, int]]) -> list[Launch]:
    load = "tests.support.measured_system:MeasuredSystem"
    return [Launch(name, load, {"name": name, "log": str(log)}, tasks) for name in ("a", "b")]


def test_every_round_begins_with_another_system() -> None:
    measured: list[str] = []
    measure_rounds("abca", 4, "", measured.append)
    assert measured == [*"abc", *"bca", *"cab", *"abc"]


def test_the_results_of_a_variant_have_its_name() -> None:
    assert measure_rounds((8, 64), 2, "", lambda variant: variant + 1) == {"8": [9, 9], "64": [65, 65]}


def test_systems_start_in_every_round_and_take_turns_at_each_task(tmp_path: Path) -> None:
    log = tmp_path / "log"
    played = play(make_systems(log, TASKS), 2, "")
    first = ["a starts", "b starts", "a 1", "b 1", "a 9", "b 9"]
    second = ["b starts", "a starts", "b 1", "a 1", "b 9", "a 9"]
    assert log.read_text(encoding="utf-8").splitlines() == first + second
    for rounds in played.values():
        assert [
            {task: measurement.tokens for task, measurement in repetition.measurements.items()} for repetition in rounds
        ] == [{"few": 1, "many": 9}] * 2
        assert all(
            repetition.peak_bytes == max(measurement.peak_bytes for measurement in repetition.measurements.values())
            for repetition in rounds
        )


def test_a_system_that_fails_in_its_task_is_reported_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match=r"^a: TypeError: .* unexpected keyword argument 'rows'"):
        play(make_systems(tmp_path / "log", {"x": {"rows": 1}}), 1, "")
