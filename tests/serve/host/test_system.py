"""The CPUs in a container, freed memory, and functions in daemon threads."""

import asyncio
import ctypes
import gc
import os
import sys
import threading
import weakref
from pathlib import Path

import pytest

from dragoman.serve.host.system import available_cpus, run_in_daemon_thread, trim_memory, without_full_collections
from tests.support.cases import cases
from tests.support.live import WAIT_SECONDS
from tests.support.processes import resident_bytes

CASES = cases(__file__)

AFFINITY = 8
PIECES, PIECE_BYTES = 200_000, 400


@pytest.mark.parametrize(
    ("membership", "files", "expected"),
    [
        pytest.param(*row, id=name)
        for name, row in CASES["affinity and quotas of all ancestor cgroups bound the cpus"].items()
    ],
)
def test_affinity_and_quotas_of_all_ancestor_cgroups_bound_the_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, membership: str | None, files: dict[str, str], expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(AFFINITY)))
    for name, content in files.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    if membership is not None:
        (tmp_path / "membership").write_text(membership)
    assert available_cpus(tmp_path / "cgroup", tmp_path / "membership") == expected


@pytest.mark.anyio
async def test_the_result_or_exception_of_a_function_is_propagated() -> None:
    with pytest.raises(ZeroDivisionError):
        await run_in_daemon_thread(lambda: 1 // 0)
    name = await run_in_daemon_thread(lambda: threading.current_thread().name)
    assert name != threading.current_thread().name


def test_an_event_loop_ends_while_a_function_runs() -> None:
    begun, over, done = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert over.wait(WAIT_SECONDS)
        done.set()

    async def work() -> None:
        task = asyncio.create_task(run_in_daemon_thread(wait))
        await asyncio.to_thread(begun.wait, WAIT_SECONDS)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert not done.is_set()
    over.set()
    assert done.wait(WAIT_SECONDS)


class Cycle:
    """A reference cycle."""

    def __init__(self) -> None:
        self.cycle = self


def test_remaining_objects_are_frozen_and_their_cycles_freed_by_the_next_trim() -> None:
    cycle = Cycle()
    reference = weakref.ref(cycle)
    trim_memory()
    later = Cycle()
    collected = {id(get_object) for get_object in gc.get_objects()}
    assert id(cycle) not in collected
    assert id(later) in collected
    del cycle
    gc.collect()
    assert reference() is not None
    trim_memory()
    assert reference() is None


def test_one_of_several_processes_leaves_what_they_share_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection would write to the objects, and so copy their pages. Objects of its own are not frozen."""
    shared = Cycle()
    trim_memory()
    monkeypatch.setattr("dragoman.serve.host.system._share.cpus", 1)
    own = Cycle()
    trim_memory()
    collected = {id(get_object) for get_object in gc.get_objects()}
    assert id(shared) not in collected
    assert id(own) in collected


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc of Linux")
def test_freed_small_blocks_return_to_the_system() -> None:
    """The last block stays allocated: without the trim, glibc would keep all blocks before it."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    trim_memory()  # removes free heap of other tests, which would be reused
    before = resident_bytes()

    def fill() -> None:
        pieces = [libc.malloc(PIECE_BYTES) for _ in range(PIECES)]
        for piece in pieces:
            ctypes.memset(piece, 1, PIECE_BYTES)
        for piece in pieces[:-1]:
            libc.free(piece)

    thread = threading.Thread(target=fill)
    thread.start()
    thread.join()
    kept = resident_bytes() - before
    trim_memory()
    assert kept > PIECES * PIECE_BYTES / 2
    assert resident_bytes() - before < kept / 4


def test_full_collections_are_suspended_while_any_thread_asks_for_it() -> None:
    usual = gc.get_threshold()
    first, second = without_full_collections(), without_full_collections()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[:2] == usual[:2]
    assert gc.get_threshold()[2] > 1_000_000
    second.__exit__(None, None, None)
    assert gc.get_threshold() == usual
