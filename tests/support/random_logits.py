"""A model for tests of search: its logits depend on the sentence and on all target tokens, and are otherwise random."""

import zlib

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 7


def random_logits(sentence: int, tokens: tuple[int, ...]) -> NDArray[np.float64]:
    """Returns logits of the next token, [V], which single precision holds exactly."""
    generator = np.random.default_rng(zlib.crc32(np.array([sentence, *tokens]).tobytes()))
    return generator.normal(scale=1.5, size=VOCABULARY).astype(np.float32).astype(np.float64)
