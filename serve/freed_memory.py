"""Memory that was freed, given back to the operating system.

A model is held by references in circles, which Python lets go of now and then; and what is freed in small pieces glibc
keeps, for each thread by itself, though the threads of a replaced model are gone. All that would add up with every
further model.
"""

import ctypes
import gc


def give_back() -> None:
    """Gives back what nobody uses, as far as the C library can be asked to. Takes some dozens of milliseconds."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
