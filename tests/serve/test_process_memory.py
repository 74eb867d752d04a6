"""`trim_memory` frees reference cycles, freezes remaining objects and returns freed heap to the system."""

import ctypes
import gc
import sys
import threading
import weakref

import pytest

from serve.system import trim_memory
from tests.support.processes import resident_bytes

PIECES, PIECE_BYTES = 200_000, 400


class Held:
    """A reference cycle."""

    def __init__(self) -> None:
        self.cycle = self


def test_cycles_are_freed() -> None:
    occupied = weakref.ref(Held())
    trim_memory()
    assert occupied() is None


def test_existing_objects_are_frozen() -> None:
    there = Held()
    trim_memory()
    later = Held()
    collected = {id(each) for each in gc.get_objects()}
    assert id(there) not in collected
    assert id(later) in collected


def test_frozen_cycles_are_freed_by_the_next_call() -> None:
    there = Held()
    occupied = weakref.ref(there)
    trim_memory()
    del there
    gc.collect()
    assert occupied() is not None
    trim_memory()
    assert occupied() is None


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
