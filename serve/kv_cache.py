"""The keys and values of every slot, in slot-major arrays that ONNX Runtime reads and writes in place.

Each decoder layer has four arrays [slots, H, capacity, D]: keys and values of self-attention, one position more with
every step, and keys and values of cross-attention, written once per sequence. A step binds the first R slots: because
slots are the outermost axis, that is a view and copies nothing. Knows neither sequences nor ONNX Runtime.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Cache = NDArray[np.float32]


class KVCache:
    """The caches of one engine; lists are by decoder layer, arrays float32 [slots, H, capacity, D].

    Attributes:
        self_caches: keys and values of layer 0, keys and values of layer 1, ...; the capacity is in target tokens.
        cross_caches: the same for cross-attention; the capacity is in source tokens.
    """

    def __init__(
        self, *, slots: int, layers: int, heads: int, head_size: int, max_source_tokens: int, max_target_tokens: int
    ) -> None:
        self.slots = slots
        self.self_caches = [_empty(slots, heads, max_target_tokens, head_size) for _ in range(2 * layers)]
        self.cross_caches = [_empty(slots, heads, max_source_tokens, head_size) for _ in range(2 * layers)]

    def write_cross(self, first_slot: int, encoded: Sequence[Cache]) -> None:
        """Keeps what the encoder computed for B sequences in slots `first_slot` to `first_slot + B - 1`.

        Args:
            first_slot: the slot of the first sequence.
            encoded: cross-attention keys and values by layer, each [B, H, S, D] with S at most the capacity.
        """
        for cache, new in zip(self.cross_caches, encoded, strict=True):
            rows, _, length, _ = new.shape
            cache[first_slot : first_slot + rows, :, :length] = new

    def move(self, source: int, target: int, self_length: int, cross_length: int) -> None:
        """Copies the valid positions of one slot over those of another.

        Args:
            source: the slot to copy.
            target: the slot to overwrite.
            self_length: valid positions of self-attention.
            cross_length: valid positions of cross-attention.
        """
        for cache in self.self_caches:
            cache[target, :, :self_length] = cache[source, :, :self_length]
        for cache in self.cross_caches:
            cache[target, :, :cross_length] = cache[source, :, :cross_length]


def _empty(slots: int, heads: int, capacity: int, head_size: int) -> Cache:
    # Zeros, not garbage: a NaN behind the valid length could leak through a product with zero.
    return np.zeros((slots, heads, capacity, head_size), np.float32)
