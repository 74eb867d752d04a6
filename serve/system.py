"""How many CPUs this process may use: a container's share, never the host's count.

Thread pools sized from the host's count thrash inside a container. Linux only; called by the settings and the
benchmarks.

The memory of the process, put in order: what stays is looked through no more, and what nobody uses is given back.

Python's garbage collector looks for circles of references that nobody holds. As requests come and go it looks through
everything, again and again, and all threads stand still meanwhile. Nearly all that there is stays for good: modules,
routes, models. And a model that was replaced is held by such circles, while what is freed in small pieces glibc keeps,
for each thread by itself, though the threads of that model are gone: all that would add up with every further model.

Work in threads that nobody has to wait for: what loads for minutes or hangs must not hold up the end of the process.

`asyncio.to_thread` would, because the event loop ends only after its threads have. Called by whatever opens and loads
models; `serve.app` looks in the end whether such a thread is left.
"""

import asyncio
import ctypes
import gc
import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar


def trim_memory() -> None:
    """Gives back what nobody uses, and has the collector pass over all that is left.

    For moments at which what there is will stay. Takes some dozens of milliseconds, in which Python runs nothing else.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    # Not every C library has it.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


SIDE_THREAD = "aside"

T = TypeVar("T")


async def run_in_daemon_thread(function: Callable[[], T]) -> T:
    """Returns or raises what a function does. If the call is cancelled, the function goes on alone."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # from now on it cannot be cancelled, and is complete in the end

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - it is raised again where the function is waited for
            future.set_exception(error)

    threading.Thread(target=work, name=SIDE_THREAD, daemon=True).start()
    return await asyncio.wrap_future(future)


CGROUP_ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def available_cpus(cgroup_root: Path = CGROUP_ROOT, membership: Path = MEMBERSHIP) -> int:
    """Returns the smaller of the CPU affinity and the cgroup's quota, rounded up; at least 1.

    The affinity needs no help: the kernel keeps it within the cgroup's set of CPUs (cpuset).

    Args:
        cgroup_root: where the control groups are mounted; inside a container its files are the container's own.
        membership: the file that tells in which control groups this process is.
    """
    affinity = len(os.sched_getaffinity(0))
    quota = min(_quotas(cgroup_root, membership), default=math.inf)
    return max(1, math.ceil(min(affinity, quota)))


def _quotas(cgroup_root: Path, membership: Path) -> Iterator[float]:
    """Yields the CPU time per time that each cgroup above this process allows, where one sets a bound."""
    for controllers, place in _memberships(membership):
        # Version 2 has one hierarchy without a name; in version 1 each controller has its own.
        if controllers == "":
            mount, read = cgroup_root, _quota_of_version_2
        elif "cpu" in controllers.split(","):
            mount, read = cgroup_root / "cpu", _quota_of_version_1
        else:
            continue
        # A container may see the host's name of its cgroup, but mounted is only what is below it: what is not found
        # there is passed over, and the mounted root counts.
        steps = Path(place.lstrip("/")).parts
        for depth in range(len(steps) + 1):
            quota = read(mount.joinpath(*steps[:depth]))
            if quota is not None:
                yield quota


def _memberships(membership: Path) -> Iterator[tuple[str, str]]:
    """Yields controllers and path of each cgroup; lines are `number:controllers:path`."""
    for line in (_read(membership) or "").splitlines():
        _, controllers, place = line.split(":", 2)
        yield controllers, place


def _quota_of_version_2(group: Path) -> float | None:
    content = _read(group / "cpu.max")
    if content is None:
        return None
    quota, period = content.split()
    return None if quota == "max" else int(quota) / int(period)


def _quota_of_version_1(group: Path) -> float | None:
    quota, period = _read(group / "cpu.cfs_quota_us"), _read(group / "cpu.cfs_period_us")
    return None if quota is None or period is None or int(quota) < 0 else int(quota) / int(period)


def _read(path: Path) -> str | None:
    """Returns the content of a file; None if there is none to read, as where no cgroups are mounted."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
