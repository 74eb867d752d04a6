"""The process of a system: its failure is explained, and it ends with the block."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.process import AffinityError, Launch, SystemFailedError, SystemProcess, running_on

TURN_TAKER = "tests.support.turn_taker:TurnTaker"


@pytest.fixture(name="launch")
def _launch(tmp_path: Path) -> Launch:
    return Launch("system", TURN_TAKER, {"name": "a", "log": str(tmp_path / "log")})


def test_a_turn_counts_tokens_over_seconds(launch: Launch) -> None:
    with SystemProcess.run(launch) as system:
        turn = system.take_turn({"tokens": 7})
        assert turn.tokens == 7
        assert turn.tokens_per_second == turn.tokens / turn.seconds
        assert system.loaded.seconds > 0


def test_the_peak_is_that_of_the_system_alone(launch: Launch) -> None:
    """`ru_maxrss` of `getrusage` is inherited from the parent process."""
    occupied = np.ones(60_000_000)
    with SystemProcess.run(launch) as system:
        assert system.take_turn({"tokens": 1}).peak_bytes < occupied.nbytes


def test_the_process_ends_with_the_block(launch: Launch) -> None:
    with SystemProcess.run(launch) as system:
        assert system._process.poll() is None
    assert system._process.poll() is not None


@pytest.mark.parametrize(
    ("load", "options", "reason"),
    [
        (TURN_TAKER, {"wrong": 1}, r"TypeError: .*unexpected keyword argument 'wrong'"),
        ("builtins:print", {}, r"ended with status -?[0-9]+"),
    ],
)
def test_a_system_that_does_not_load_is_reported(load: str, options: dict[str, int], reason: str) -> None:
    with (
        pytest.raises(SystemFailedError, match=f"^system: {reason}"),
        SystemProcess.run(Launch("system", load, options)),
    ):
        pass


def take_turn_after_death(launch: Launch) -> None:
    with SystemProcess.run(launch) as system:
        system._process.kill()
        system._process.wait()
        system.take_turn({"tokens": 1})


def test_a_system_killed_between_its_turns_is_reported(launch: Launch) -> None:
    """As by the out-of-memory killer."""
    with pytest.raises(SystemFailedError, match=r"^system: ended with status -9"):
        take_turn_after_death(launch)


def test_a_cpu_that_does_not_exist_is_rejected() -> None:
    with pytest.raises(AffinityError, match="4095"), running_on((4095,)):
        pass
