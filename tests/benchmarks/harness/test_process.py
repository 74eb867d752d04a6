"""The process of a system: its failure is explained, and it ends with the block."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.errors import BenchmarkError
from benchmarks.harness.process import Launch, Measurement, run_system, running_on

MEASURED_SYSTEM = "tests.support.measured_system:MeasuredSystem"


@pytest.fixture(name="launch")
def _launch(tmp_path: Path) -> Launch:
    return Launch("system", MEASURED_SYSTEM, {"name": "a", "log": str(tmp_path / "log")}, {})


def test_a_measurement_counts_tokens_over_seconds(launch: Launch) -> None:
    with run_system(launch) as system:
        assert system.ask(launch.options) > 0
        measurement = Measurement(*system.ask({"tokens": 7}))
    assert measurement.tokens == 7
    assert measurement.tokens_per_second == measurement.tokens / measurement.seconds


def test_the_peak_is_that_of_the_system_alone(launch: Launch) -> None:
    """`ru_maxrss` of `getrusage` is inherited from the parent process."""
    occupied = np.ones(60_000_000)
    with run_system(launch) as system:
        system.ask(launch.options)
        assert Measurement(*system.ask({"tokens": 1})).peak_bytes < occupied.nbytes


def test_the_process_ends_with_the_block(launch: Launch) -> None:
    with run_system(launch) as system:
        system.ask(launch.options)
        assert system.process.poll() is None
    assert system.process.poll() is not None


@pytest.mark.parametrize(
    ("load", "options", "reason"),
    [
        (MEASURED_SYSTEM, {"wrong": 1}, r"TypeError: .*unexpected keyword argument 'wrong'"),
        ("builtins:print", {}, r"ended with status -?[0-9]+"),
    ],
)
def test_a_system_that_does_not_load_is_reported(load: str, options: dict[str, int], reason: str) -> None:
    launch = Launch("system", load, options, {})
    with run_system(launch) as system, pytest.raises(BenchmarkError, match=f"^system: {reason}"):
        system.ask(options)


def test_a_system_killed_between_its_tasks_is_reported(launch: Launch) -> None:
    """As by the out-of-memory killer."""
    with run_system(launch) as system:
        system.ask(launch.options)
        system.process.kill()
        system.process.wait()
        with pytest.raises(BenchmarkError, match=r"^system: ended with status -9"):
            system.ask({"tokens": 1})


def test_a_cpu_that_does_not_exist_is_rejected() -> None:
    with pytest.raises(BenchmarkError, match="4095"), running_on((4095,)):
        pass
