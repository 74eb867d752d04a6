"""The CPU count follows the affinity and both versions of the cgroup quota."""

import os
from pathlib import Path

import pytest

from serve.cpus import available_cpus


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(8)))


def test_without_a_cgroup_the_affinity_counts(tmp_path: Path) -> None:
    assert available_cpus(tmp_path) == 8


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [
        ("max 100000\n", 8),
        ("200000 100000\n", 2),
        ("150000 100000\n", 2),
        ("50000 100000\n", 1),
        ("25000 50000\n", 1),
        ("1600000 100000\n", 8),
    ],
)
def test_version_2_quota_is_rounded_up_and_bounds_the_affinity(tmp_path: Path, cpu_max: str, expected: int) -> None:
    (tmp_path / "cpu.max").write_text(cpu_max)
    assert available_cpus(tmp_path) == expected


@pytest.mark.parametrize(("quota", "expected"), [("-1\n", 8), ("300000\n", 3), ("10000\n", 1)])
def test_version_1_quota_is_read_from_its_two_files(tmp_path: Path, quota: str, expected: int) -> None:
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert available_cpus(tmp_path) == expected
