"""The process of a system: its failure is explained, and it ends with the block."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.process import Assignment, Launch, SystemFailedError, SystemProcess


def test_a_system_that_does_not_load_is_reported_with_its_last_line(tmp_path: Path) -> None:
    settings = {"folder": str(tmp_path / "none"), "threads": 1, "slots": 1}
    with (
        pytest.raises(SystemFailedError, match=r"^system: serve\.bundle\.bundle\.BundleError: .*none: no such folder"),
        SystemProcess.run(Launch("system", "benchmarks.systems.onnx_decoder:OnnxDecoder", settings)),
    ):
        pass


def test_the_peak_is_that_of_the_system_alone(tmp_path: Path) -> None:
    """`ru_maxrss` of `getrusage` is inherited from the parent process."""
    occupied = np.ones(60_000_000)
    launch = Launch("system", "tests.support.turn_taker:TurnTaker", {"name": "a", "log": str(tmp_path / "log")})
    with SystemProcess.run(launch) as system:
        assert system.take_turn(Assignment({"tokens": 1}, 0)).peak_bytes < occupied.nbytes


def test_the_process_ends_with_the_block(tmp_path: Path) -> None:
    with SystemProcess.run(
        Launch("system", "tests.support.turn_taker:TurnTaker", {"name": "a", "log": str(tmp_path / "log")})
    ) as system:
        assert system._process.poll() is None
    assert system._process.poll() is not None


def test_a_program_with_other_output_is_reported() -> None:
    with (
        pytest.raises(SystemFailedError, match=r"^system: ended with status -?[0-9]+"),
        SystemProcess.run(Launch("system", "builtins:print", {})),
    ):
        pass


def take_turn_after_death(launch: Launch) -> None:
    with SystemProcess.run(launch) as system:
        system._process.kill()
        system._process.wait()
        system.take_turn(Assignment({"tokens": 1}, 0))


def test_a_system_killed_between_its_turns_is_reported(tmp_path: Path) -> None:
    """As by the out-of-memory killer."""
    launch = Launch("system", "tests.support.turn_taker:TurnTaker", {"name": "a", "log": str(tmp_path / "log")})
    with pytest.raises(SystemFailedError, match=r"^system: ended with status -9"):
        take_turn_after_death(launch)
