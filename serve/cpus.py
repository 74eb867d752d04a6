"""How many CPUs this process may use: a container's share, never the host's count.

Thread pools sized from the host's count thrash inside a container. Linux only; called by `app` and the benchmarks.
"""

import math
import os
from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")


def available_cpus(cgroup_root: Path = CGROUP_ROOT) -> int:
    """Returns the smaller of the CPU affinity and the cgroup quota, rounded up; at least 1.

    Args:
        cgroup_root: where the control groups are mounted; inside a container its files are the container's own.
    """
    affinity = len(os.sched_getaffinity(0))
    quota = _quota(cgroup_root)
    return affinity if quota is None else max(1, min(affinity, math.ceil(quota)))


def _quota(cgroup_root: Path) -> float | None:
    """Returns the CPU time per time that the cgroup (version 2, else 1) allows, or None if it sets no bound."""
    unified = cgroup_root / "cpu.max"
    legacy = cgroup_root / "cpu"
    if unified.exists():
        quota, period = unified.read_text().split()
    elif (legacy / "cpu.cfs_quota_us").exists():
        quota = (legacy / "cpu.cfs_quota_us").read_text()
        period = (legacy / "cpu.cfs_period_us").read_text()
    else:
        return None
    return None if quota == "max" or int(quota) < 0 else int(quota) / int(period)
