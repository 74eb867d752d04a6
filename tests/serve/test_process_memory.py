"""What stays is passed over by the garbage collector, and what was freed is given back: circles, and small pieces."""

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
    """Holds itself."""

    def __init__(self) -> None:
        self.circle = self


def test_circles_are_let_go_of() -> None:
    occupied = weakref.ref(Held())
    trim_memory()
    assert occupied() is None


def test_what_is_there_is_passed_over_by_the_collector() -> None:
    there = Held()
    trim_memory()
    later = Held()
    looked_through = {id(each) for each in gc.get_objects()}
    assert id(there) not in looked_through
    assert id(later) in looked_through


def test_circles_that_were_passed_over_are_let_go_of_the_next_time() -> None:
    there = Held()
    occupied = weakref.ref(there)
    trim_memory()
    del there
    gc.collect()
    assert occupied() is not None
    trim_memory()
    assert occupied() is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the kernel of Linux")
def test_small_pieces_are_given_back() -> None:
    """The last one stays, and would keep all before it with the process."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    trim_memory()  # or what other tests left could be used instead
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
