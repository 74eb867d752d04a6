"""Tables of relative positions as checkpoints store them, and as graphs read them: one row per distance.

Row L - 1 of 2 L - 1 is that of distance 0; the distance is the position of the key minus that of the query.
"""

import math

import numpy as np
from numpy.typing import NDArray

from dragoman.export.imports.common import Array


def bias_per_distance(table: Array, positions: int, max_distance: int, *, bidirectional: bool) -> Array:
    """Returns the biases of T5, [2 L - 1, H], of a table of buckets, [buckets, H].

    Each near distance has a bucket; far ones share buckets that grow as their logarithm. With `bidirectional`, keys
    after the query have a half of the buckets. Source: Raffel et al. 2020, section 2.1, and `transformers`.
    """
    distances = np.arange(1 - positions, positions)
    buckets = len(table)
    if not bidirectional:
        return np.asarray(table[_buckets(np.maximum(-distances, 0), buckets, max_distance)])
    half = buckets // 2
    return np.asarray(table[_buckets(np.abs(distances), half, max_distance) + half * (distances > 0)])


def _buckets(distances: NDArray[np.int64], buckets: int, max_distance: int) -> NDArray[np.int64]:
    near = buckets // 2
    # The libraries compute in single precision: a distance may lie on the border of two buckets.
    ratio = np.log(np.maximum(distances, near).astype(np.float32) / np.float32(near))
    steps = ratio / np.float32(math.log(max_distance / near)) * np.float32(buckets - near)
    return np.where(distances < near, distances, np.minimum(near + steps.astype(np.int64), buckets - 1))


def vectors_per_distance(table: Array, positions: int) -> Array:
    """Returns the vectors [2 L - 1, D] of a table for distances -k to k, which farther ones share with -k or k."""
    farthest = len(table) // 2
    return np.asarray(table[np.clip(np.arange(1 - positions, positions), -farthest, farthest) + farthest])
