"""A model for search tests: its logits are random functions of the sentence and all target tokens."""

import zlib

import numpy as np
from numpy.typing import NDArray

VOCABULARY = 7


def random_logits(sentence: int, tokens: tuple[int, ...]) -> NDArray[np.float64]:
    """Returns logits of the next token, [V], which float32 represents exactly."""
    generator = np.random.default_rng(zlib.crc32(np.array([sentence, *tokens]).tobytes()))
    return generator.normal(scale=1.5, size=VOCABULARY).astype(np.float32).astype(np.float64)
