"""The memory of the process, put in order: what stays is looked through no more, and what nobody uses is given back.

Python's garbage collector looks for circles of references that nobody holds. As requests come and go it looks through
everything, again and again, and all threads stand still meanwhile. Nearly all that there is stays for good: modules,
routes, models. And a model that was replaced is held by such circles, while what is freed in small pieces glibc keeps,
for each thread by itself, though the threads of that model are gone: all that would add up with every further model.
"""

import ctypes
import gc


def settle() -> None:
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
