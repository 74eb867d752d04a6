"""A system in a process of its own: its failure is explained, and it ends with the block."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.process import Assignment, Launch, SystemFailedError, SystemProcess


def test_a_system_that_does_not_load_is_told_with_what_it_wrote_last(tmp_path: Path) -> None:
    settings = {"folder": str(tmp_path / "none"), "threads": 1, "slots": 1}
    with (
        pytest.raises(SystemFailedError, match=r"^ours: serve\.bundle\.bundle\.BundleError: .*none: no such folder"),
        SystemProcess.run(Launch("ours", "benchmarks.systems.onnx_decoder", settings)),
    ):
        pass


def test_the_peak_is_that_of_the_system_alone(tmp_path: Path) -> None:
    """A process inherits the greatest resident set of the one that starts it, as `getrusage` tells it."""
    occupied = np.ones(60_000_000)
    launch = Launch("ours", "tests.support.turn_taker", {"name": "a", "log": str(tmp_path / "log")})
    with SystemProcess.run(launch) as system:
        assert system.take_turn(Assignment({"tokens": 1}, 0)).peak_bytes < occupied.nbytes


def test_the_process_ends_with_the_block(tmp_path: Path) -> None:
    with SystemProcess.run(
        Launch("ours", "tests.support.turn_taker", {"name": "a", "log": str(tmp_path / "log")})
    ) as system:
        assert system._process.poll() is None
    assert system._process.poll() is not None


def test_a_program_that_does_not_speak_our_language_is_told() -> None:
    with (
        pytest.raises(SystemFailedError, match=r"^ours: ended with status -?[0-9]+ and wrote nothing"),
        SystemProcess.run(Launch("ours", "this", {})),
    ):
        pass


def take_turn_after_death(launch: Launch) -> None:
    with SystemProcess.run(launch) as system:
        system._process.kill()
        system._process.wait()
        system.take_turn(Assignment({"tokens": 1}, 0))


def test_a_system_that_was_killed_between_its_turns_is_told(tmp_path: Path) -> None:
    """As one that needs more memory than there is."""
    launch = Launch("ours", "tests.support.turn_taker", {"name": "a", "log": str(tmp_path / "log")})
    with pytest.raises(SystemFailedError, match=r"^ours: ended with status -9"):
        take_turn_after_death(launch)
