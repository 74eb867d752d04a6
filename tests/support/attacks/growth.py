"""How the time of a function grows with the size of its input, measured in CPU time of the thread."""

import gc
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# Linear time grows by 4, quadratic time by 16.
FACTOR = 4
MAX_GROWTH = 8.0
_FIRST_SIZE = 4000
_LAST_SIZE = 1_024_000
# A run of this time is long enough to compare. Shorter ones are noise.
_LONG_SECONDS = 0.05
_SHORT_SECONDS = 0.002
_ATTEMPTS = 3


def largest_growth(make: Callable[[int], T], work: Callable[[T], object]) -> float:
    """Returns the largest factor by which the time grows if the size grows by `FACTOR`.

    The size grows until a run is long. A growth that is not seen again is noise: the best of a few attempts counts.
    """
    largest, size, before_seconds = 0.0, _FIRST_SIZE, 0.0
    while size <= _LAST_SIZE:
        seconds = _cpu_seconds(work, make(size))
        if before_seconds > _SHORT_SECONDS:
            growth = seconds / before_seconds
            for _ in range(_ATTEMPTS if growth > MAX_GROWTH else 0):
                before = _cpu_seconds(work, make(size // FACTOR))
                growth = min(growth, _cpu_seconds(work, make(size)) / before)
            largest = max(largest, growth)
        if seconds > _LONG_SECONDS:
            break
        size, before_seconds = size * FACTOR, seconds
    return largest


def _cpu_seconds(work: Callable[[T], object], given: T) -> float:
    gc.collect()
    gc.disable()
    begun_seconds = time.thread_time()
    try:
        work(given)
    finally:
        gc.enable()
    return time.thread_time() - begun_seconds
