"""The process on Linux: its devices, its CPUs in a container, its memory, open files, and daemon threads.

Modules, routes and models live as long as the process, but every full garbage collection stops all threads to traverse
them. A replaced model stays in reference cycles, and glibc keeps freed memory per thread. `trim_memory` handles both,
`return_memory` only the second.
"""

import asyncio
import ctypes
import gc
import math
import os
import resource
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

# The device on which the operator wants to compute; `auto` follows the variant of the bundle.
DeviceChoice = Literal["auto", "cpu", "cuda"]


def trim_memory() -> None:
    """Collects garbage, excludes all remaining objects from later collections and returns free heap to the system.

    Blocks the interpreter for tens of milliseconds: call it after models are loaded or replaced. In one of several
    processes, only what the others share stays excluded: a collection writes to each object, and so copies its page.
    """
    alone = _share.cpus is None
    if alone:
        gc.unfreeze()
    gc.collect()
    if alone:
        gc.freeze()
    return_memory()


def return_memory() -> None:
    """Returns free heap to the system, for milliseconds without the lock of the interpreter."""
    # musl has no malloc_trim.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class _FullCollections:
    """Suspends full garbage collections while any thread asks for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asking = 0
        self._thresholds = gc.get_threshold()

    @contextmanager
    def suspended(self) -> Iterator[None]:
        with self._lock:
            self._asking += 1
            if self._asking == 1:
                self._thresholds = gc.get_threshold()
                gc.set_threshold(*self._thresholds[:2], _NEVER)
        try:
            yield
        finally:
            with self._lock:
                self._asking -= 1
                if not self._asking:
                    gc.set_threshold(*self._thresholds)


_NEVER = 2**31 - 1
_FULL_COLLECTIONS = _FullCollections()


def without_full_collections() -> AbstractContextManager[None]:
    """Returns a context for many objects, without full garbage collections, which would stop all threads."""
    return _FULL_COLLECTIONS.suspended()


SIDE_THREAD = "side"
# The largest number of a standard stream.
STANDARD_ERROR = 2

T = TypeVar("T")


async def run_in_daemon_thread(function: Callable[[], T]) -> T:
    """Runs a function in a daemon thread; if the call is canceled, the function continues.

    The process can end while the function loads or hangs. With `asyncio.to_thread` it would wait for the thread.
    """
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()  # a running future cannot be canceled, so set_result never fails

    def work() -> None:
        try:
            future.set_result(function())
        except BaseException as error:  # noqa: BLE001 - raised again by the await
            future.set_exception(error)

    threading.Thread(target=work, name=SIDE_THREAD, daemon=True).start()
    return await asyncio.wrap_future(future)


def max_open_files() -> float:
    """Returns the limit of open files of this process; infinite if there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return math.inf if soft == resource.RLIM_INFINITY else soft


def raise_most_open_files() -> None:
    """Raises the limit of open files to the maximum that the system allows this process."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def open_standard_descriptors() -> None:
    """Opens what discards everything in place of closed standard streams, before other files get their numbers.

    Libraries in C++ write to these numbers, and libuv ends the process when it has to close one of them.
    """
    while (opened := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        pass
    os.close(opened)


CGROUP_ROOT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


@dataclass(slots=True)
class _Share:
    """The CPUs of this process among several of one service; None: all that the system allows."""

    cpus: int | None = None


_share = _Share()


def use_cpus(cpus: Collection[int], count: int) -> None:
    """Binds this process, which must have one thread, to CPUs, of which it counts `count` as its own from now on."""
    os.sched_setaffinity(0, cpus)
    _share.cpus = count


def available_cpus(cgroup_root: Path = CGROUP_ROOT, membership: Path = MEMBERSHIP) -> int:
    """Returns the smaller of the CPU affinity and the cgroup quota, rounded up; at least 1.

    The count of the host would oversubscribe a container. The kernel keeps the affinity within the cpuset.

    Args:
        cgroup_root: mount point of the cgroups; in a container, its files are those of the container.
        membership: file with the cgroups of this process.
    """
    affinity = len(os.sched_getaffinity(0))
    quota = min(_quotas(cgroup_root, membership), default=math.inf)
    allowed = max(1, math.ceil(min(affinity, quota)))
    return allowed if _share.cpus is None else min(allowed, _share.cpus)


def _quotas(cgroup_root: Path, membership: Path) -> Iterator[float]:
    """Yields the quota, in CPUs, of each cgroup of this process and its ancestors that has one."""
    for line in (_read(membership) or "").splitlines():
        _, controllers, group = line.split(":", 2)
        # Version 2 has one unnamed hierarchy; in version 1 each controller has one.
        if controllers == "":
            mount, read = cgroup_root, _quota_of_version_2
        elif "cpu" in controllers.split(","):
            mount, read = cgroup_root / "cpu", _quota_of_version_1
        else:
            continue
        # A container may see the path of its cgroup on the host, but only the part below is mounted: missing folders
        # are skipped, and the mounted root counts.
        steps = Path(group.lstrip("/")).parts
        for depth in range(len(steps) + 1):
            quota = read(mount.joinpath(*steps[:depth]))
            if quota is not None:
                yield quota


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
    """Returns the content of a file; None if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
