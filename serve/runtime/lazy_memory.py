"""Arrays of zeros in anonymous memory, of which only written pages take space."""

import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


def lazy_zeros(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """Returns zeros; pages take memory when they are first written."""
    kind, size = np.dtype(dtype), math.prod(shape)
    pages = mmap.mmap(-1, max(size, 1) * kind.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    # NumPy requests huge pages: one filled position would take 2 MB, more than the whole capacity of its head.
    pages.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(pages, kind, size).reshape(shape)
