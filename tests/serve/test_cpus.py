"""The CPU count is bounded by the affinity and the quotas of all ancestor cgroups, in both versions."""

import os
from pathlib import Path

import pytest

from serve.system import available_cpus

AFFINITY = 8


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(AFFINITY)))


def cpus(folder: Path, membership: str, files: dict[str, str]) -> int:
    """Returns the count for a membership and the files below the mount point."""
    root = folder / "cgroup"
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (folder / "membership").write_text(membership)
    return available_cpus(root, folder / "membership")


def test_without_cgroups_the_affinity_counts(tmp_path: Path) -> None:
    assert available_cpus(tmp_path / "none", tmp_path / "nothing") == AFFINITY


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
def test_the_quota_of_a_container_is_rounded_up_and_bounds_the_affinity(
    tmp_path: Path, cpu_max: str, expected: int
) -> None:
    assert cpus(tmp_path, "0::/\n", {"cpu.max": cpu_max}) == expected


def test_a_service_of_the_host_is_bounded_by_its_own_group(tmp_path: Path) -> None:
    """Here systemd sets CPUQuota; the root of the hierarchy has no file."""
    files = {"system.slice/cpu.max": "max 100000\n", "system.slice/dragoman.service/cpu.max": "300000 100000\n"}
    assert cpus(tmp_path, "0::/system.slice/dragoman.service\n", files) == 3


def test_the_narrowest_of_nested_groups_counts(tmp_path: Path) -> None:
    files = {"pod/cpu.max": "200000 100000\n", "pod/container/cpu.max": "400000 100000\n"}
    assert cpus(tmp_path, "0::/pod/container\n", files) == 2


def test_the_group_of_another_process_does_not_count(tmp_path: Path) -> None:
    files = {"mine/cpu.max": "max 100000\n", "other/cpu.max": "100000 100000\n"}
    assert cpus(tmp_path, "0::/mine\n", files) == AFFINITY


@pytest.mark.parametrize(("quota", "expected"), [("-1\n", 8), ("300000\n", 3), ("10000\n", 1)])
def test_version_1_has_a_hierarchy_for_each_controller(tmp_path: Path, quota: str, expected: int) -> None:
    """A container sees the path of its group on the host, but its files are at the mounted root."""
    files = {"cpu/cpu.cfs_quota_us": quota, "cpu/cpu.cfs_period_us": "100000\n"}
    membership = "12:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n1:name=systemd:/docker/abc\n"
    assert cpus(tmp_path, membership, files) == expected


def test_a_group_of_version_1_is_found_below_the_root(tmp_path: Path) -> None:
    files = {
        "cpu/cpu.cfs_quota_us": "-1\n",
        "cpu/cpu.cfs_period_us": "100000\n",
        "cpu/docker/abc/cpu.cfs_quota_us": "200000\n",
        "cpu/docker/abc/cpu.cfs_period_us": "100000\n",
    }
    assert cpus(tmp_path, "4:cpuset,cpu:/docker/abc\n", files) == 2
