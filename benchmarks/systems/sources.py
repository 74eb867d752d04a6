"""Sources for measurements of decoders: token ids that mean nothing, the same ones for every system."""

import numpy as np
from numpy.typing import NDArray

# The smaller ids are special tokens.
FIRST_PIECE = 4


def draw_sources(seed: int, rows: int, length: int, vocabulary_size: int, eos_id: int) -> NDArray[np.int64]:
    """Returns sources of one length, int64 [rows, length], each ending in EOS; the same for the same arguments."""
    sources = np.random.default_rng(seed).integers(FIRST_PIECE, vocabulary_size, size=(rows, length))
    sources[:, -1] = eos_id
    return sources
