"""The order of weights in memory: blocks of 16 outputs, as the kernels read them, and back.

A matrix W of y = x W^T + b is [N, K]. N is padded to a multiple of 16. In 8 bits K is padded to a multiple of 4:
integer units multiply four pairs at once. Padding is zero. Graphs of standard operators alone have W^T instead, [K, N]:
ONNX Runtime would hold every matrix that it reorders in memory. Their tables are in blocks too.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.serve.bundle.manifest import CACHE_BLOCK_TOKENS

# Outputs of a block; as many positions form a block of the KV cache.
LANES = CACHE_BLOCK_TOKENS
# Inputs that an integer unit multiplies at once.
GROUP = 4
# Symmetric: -128 is not used.
MAX_INT8 = 127
# The zero point of 8-bit activations: x86 integer units multiply unsigned by signed.
ZERO_POINT = 128
# Matrices with a row per token. A table and the matrix that makes logits may be one weight.
TABLES = ("embedding", "target_embedding", "output")


class Quantized(NamedTuple):
    """A matrix with one scale per output: W[o, i] = values[o, i] * scales[o], int8 [N, K] and float32 [N]."""

    values: NDArray[np.int8]
    scales: NDArray[np.float32]


def quantize(matrix: NDArray[np.float32]) -> Quantized:
    """Rounds each output, a row of [N, K], to multiples of 1/127 of its largest magnitude."""
    scales = np.abs(matrix).max(axis=1) / np.float32(MAX_INT8)
    divisors = np.where(scales == 0, np.float32(1), scales)
    return Quantized(np.rint(matrix / divisors[:, np.newaxis]).astype(np.int8), scales)


def rounded_up(size: int, multiple: int) -> int:
    """Returns the smallest multiple that is not below a size."""
    return -(-size // multiple) * multiple


def padded(values: NDArray[Any], size: int, filler: float = 0) -> NDArray[Any]:
    """Pads the first axis to a size."""
    return np.pad(values, [(0, size - len(values)), *[(0, 0)] * (values.ndim - 1)], constant_values=filler)


def pack_floats(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the blocks of a matrix [N, K], float32 [Np / 16, K, 16]."""
    rows = padded(matrix, rounded_up(len(matrix), LANES))
    return np.ascontiguousarray(rows.reshape(-1, LANES, matrix.shape[1]).transpose(0, 2, 1))


def pack_integers(matrix: NDArray[np.int8]) -> NDArray[np.int8]:
    """Returns the blocks of a matrix [N, K], int8 [Np / 16, Kp / 4, 16, 4]."""
    outputs, inputs = (rounded_up(size, multiple) for size, multiple in zip(matrix.shape, (LANES, GROUP), strict=True))
    rows = padded(padded(matrix, outputs).T, inputs).T
    return np.ascontiguousarray(rows.reshape(-1, LANES, inputs // GROUP, GROUP).transpose(0, 2, 1, 3))


def unpack_floats(blocks: NDArray[np.float32]) -> NDArray[np.float32]:
    """Returns the matrix of `pack_floats` with its padding, float32 [Np, K]."""
    return blocks.transpose(0, 2, 1).reshape(-1, blocks.shape[1])


def unpack_integers(blocks: NDArray[np.int8]) -> NDArray[np.int8]:
    """Returns the matrix of `pack_integers` with its padding, int8 [Np, Kp]."""
    return blocks.transpose(0, 2, 1, 3).reshape(-1, blocks.shape[1] * GROUP)


def offsets(packed: NDArray[np.int8]) -> NDArray[np.int32]:
    """Returns what the zero point of the activations adds to the product of each output, int32 [Np]."""
    sums: NDArray[np.int32] = packed.sum(axis=(1, 3), dtype=np.int32).reshape(-1)
    return -ZERO_POINT * sums
