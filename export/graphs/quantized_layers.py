"""Dynamic quantization for CPUs: 8-bit layers in which a row's result depends on no other row.

Weights have one scale per column, activations one per row. With the usual scale per batch, one large activation would
reduce the precision of every row. Activations are uint8 with zero point 128: x86 integer units multiply unsigned by
signed. The modules can be exported, but not run by PyTorch.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.onnx.ops import symbolic

from export.graphs.transformer import Embedding, Projection, frozen
from serve.bundle.manifest import GraphVariant


def quantize(states: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
    """Returns round(states / scale) + zero_point, clipped to the zero point's type, uint8 or int8; same shape."""
    values: Tensor = symbolic(
        "::QuantizeLinear", [states, scale, zero_point], dtype=zero_point.dtype, shape=states.shape
    )
    return values


def multiply_to_float(
    values: Tensor, matrix: Tensor, scale: Tensor, scales: Tensor, zero_point: Tensor, *, bias: Tensor | None = None
) -> Tensor:
    """Multiplies and scales with ONNX Runtime's MatMulIntegerToFloat.

    Args:
        values: uint8 [..., in].
        matrix: int8 [in, out].
        scale: of the values, float: a scalar, or one per row, [..., 1].
        scales: of the matrix columns, float [out].
        zero_point: of the values, uint8.
        bias: float [out]. Requires a scalar `scale`: the operator multiplies the bias by row scales.

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
    """Multiplies with the standard operator: uint8 [..., in], int8 [in, out] -> int32 [..., out]."""
    product: Tensor = symbolic(
        "::MatMulInteger",
        [values, matrix, zero_point],
        dtype=torch.int32,
        shape=(*values.shape[:-1], matrix.shape[1]),
    )
    return product


# Symmetric: -128 is not used.
LARGEST = 127
ZERO_POINT = 128
# For a column that is all zero; any positive scale works.
SMALLEST_MAXIMUM = 1e-12


class QuantizedRows(NamedTuple):
    """Quantized activations: `values`, uint8 [..., in], and the largest magnitude per row, `maxima`, float [..., 1].

    An activation is (value - 128) * maximum / 127.
    """

    values: Tensor
    maxima: Tensor


class QuantizedMatrix(nn.Module):
    """A matrix with one scale per output: W[o, i] = quantized[o, i] * scales[o], int8 [out, in] and float [out]."""

    quantized: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor, variant: GraphVariant) -> None:
        super().__init__()
        largest = weight.detach().abs().amax(dim=1).clamp(min=SMALLEST_MAXIMUM)
        scales = largest / LARGEST
        self.register_buffer("quantized", (weight.detach() / scales[:, None]).round().to(torch.int8))
        self.register_buffer("scales", scales)
        self._multiply = multiply_by_standard if variant == "portable" else multiply_by_contrib

    def multiply(self, states: Tensor) -> Tensor:
        """Multiplies states by the transposed matrix: float [..., in] -> float [..., out]."""
        # ONNX Runtime transposes once, at load time: the matrix is stored once even if it also holds embeddings.
        # Dividing the column scales by 127, the scale of the activations, saves a division in every step.
        return self._multiply(quantize_rows(states), self.quantized.T, self.scales / LARGEST)

    def rows(self, ids: Tensor) -> Tensor:
        """Gathers rows of the matrix: int64 [...] -> float [..., in]."""
        values = functional.embedding(ids, self.quantized).to(self.scales.dtype)
        return values * functional.embedding(ids, self.scales[:, None])


class QuantizedLinear(nn.Module):
    """`nn.Linear` or the output projection, with 8-bit weights and activations."""

    def __init__(self, layer: nn.Linear | Projection, variant: GraphVariant) -> None:
        super().__init__()
        self.matrix = QuantizedMatrix(layer.weight, variant)
        self.bias = None if layer.bias is None else frozen(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Maps states [..., in] to [..., out]."""
        product = self.matrix.multiply(states)
        # Not the operator's bias input: the operator would multiply it by the row's scale.
        return product if self.bias is None else product + self.bias


class QuantizedEmbedding(nn.Module):
    """`Embedding` with 8-bit weights."""

    def __init__(self, embedding: Embedding, variant: GraphVariant) -> None:
        super().__init__()
        self.matrix = QuantizedMatrix(embedding.weight, variant)
        self.scale = embedding.scale

    def forward(self, ids: Tensor) -> Tensor:
        """Maps ids [...] to embeddings [..., d_model]."""
        return self.matrix.rows(ids) * self.scale


def quantize_rows(states: Tensor) -> QuantizedRows:
    """Rounds each row to 255 levels between minus and plus its largest magnitude.

    The values of an all-zero row (possible after ReLU) are undefined; the product multiplies them by zero.
    """
    maxima = states.abs().amax(dim=-1, keepdim=True)
    return QuantizedRows(quantize(states / maxima, torch.tensor(1 / LARGEST), zero_point()), maxima)


def multiply_by_contrib(rows: QuantizedRows, matrix: Tensor, scales: Tensor) -> Tensor:
    """Multiplies rows [..., in] by an int8 matrix [in, out] with one operator of ONNX Runtime.

    `scales`, float [out], are those of the columns divided by 127. Returns float [..., out].
    """
    return multiply_to_float(rows.values, matrix, rows.maxima, scales, zero_point())


def multiply_by_standard(rows: QuantizedRows, matrix: Tensor, scales: Tensor) -> Tensor:
    """`multiply_by_contrib` with standard operators."""
    return multiply_integers(rows.values, matrix, zero_point()).to(scales.dtype) * rows.maxima * scales


def zero_point() -> Tensor:
    """Returns the zero point of activations, uint8."""
    return torch.tensor(ZERO_POINT, dtype=torch.uint8)
