"""What was freed is given back: circles that nobody holds, and small pieces between others that are still in use."""

import ctypes
import sys
import threading
import weakref

import pytest

from serve.freed_memory import give_back
from tests.processes import resident_bytes

PIECES, PIECE_BYTES = 200_000, 400


class Held:
    """Holds itself."""

    def __init__(self) -> None:
        self.circle = self


def test_circles_are_let_go_of() -> None:
    held = weakref.ref(Held())
    give_back()
    assert held() is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks the kernel of Linux")
def test_small_pieces_are_given_back() -> None:
    """The last one stays, and would keep all before it with the process."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    give_back()  # or what other tests left could be used instead
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
    give_back()
    assert kept > PIECES * PIECE_BYTES / 2
    assert resident_bytes() - before < kept / 4
