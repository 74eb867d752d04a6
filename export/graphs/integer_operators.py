"""The operators of ONNX that layers in 8-bit integers are made of: rounding to integers, and products of integers.

Like those of attention they can be exported, not run by PyTorch. Called by `quantisation` and `static_quantisation`.
"""

import torch
from torch import Tensor
from torch.onnx.ops import symbolic


def quantise(states: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Returns round(states / scale) + zero_point, the nearest of the zero point's type, uint8 or int8; same shape."""
    values: Tensor = symbolic(
        "::QuantizeLinear", [states, scale, zero_point], dtype=zero_point.dtype, shape=states.shape
    )
    return values


def multiply_to_float(
    values: Tensor, matrix: Tensor, scale: Tensor, scales: Tensor, zero_point: Tensor, *, bias: Tensor | None = None
) -> Tensor:
    """Multiplies and scales in one operator of ONNX Runtime's.

    Args:
        values: uint8 [..., in].
        matrix: int8 [in, out].
        scale: of the values, float: one, or one for each row, [..., 1].
        scales: of the matrix's columns, float [out].
        zero_point: the value that means zero, uint8.
        bias: float [out]; only with one scale for all rows, for the operator would multiply it by those of the rows.

    Returns:
        Float [..., out].
    """
    with_bias = [] if bias is None else [None, bias]
    product: Tensor = symbolic(
        "com.microsoft::MatMulIntegerToFloat",
        [values, matrix, scale, scales, zero_point, *with_bias],
        dtype=scales.dtype,
        shape=(*values.shape[:-1], matrix.shape[1]),
        version=1,
    )
    return product


def multiply_integers(values: Tensor, matrix: Tensor, zero_point: Tensor) -> Tensor:
    """Multiplies with an operator of the standard: uint8 [..., in], int8 [in, out] -> int32 [..., out]."""
    product: Tensor = symbolic(
        "::MatMulInteger",
        [values, matrix, zero_point],
        dtype=torch.int32,
        shape=(*values.shape[:-1], matrix.shape[1]),
    )
    return product
