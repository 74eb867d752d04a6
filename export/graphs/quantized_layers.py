"""Layers in 8-bit integers for a CPU, in which a row's result never depends on the rows beside it.

Weights have one scale per column, activations one per row, computed when the row is: the usual dynamic quantization has
one scale per batch, so that a stranger with a large activation would coarsen everybody's. Activations are unsigned
around 128, which is what the integer units of x86 multiply with signed weights.

The operators of ONNX that layers in 8-bit integers are made of: rounding to integers, and products of integers.

Like those of attention they can be exported, not run by PyTorch. Called by `quantization` and `static_quantization`.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.onnx.ops import symbolic

from export.graphs.transformer import Embedding, Projection, frozen
from serve.bundle.manifest import GraphVariant


def quantize(states: Tensor, scale: Tensor, zero_point: Tensor) -> Tensor:
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


# Symmetric: -128 is not used.
LARGEST = 127
ZERO_POINT = 128
# Of a column that is all zero: any scale will do that is no zero.
SMALLEST_MAXIMUM = 1e-12


class QuantizedRows(NamedTuple):
    """Activations as the integer product takes them.

    Attributes:
        values: uint8, the shape of the activations.
        maxima: the largest magnitude of each row, float, the same shape with a last axis of 1; an activation is
            (value - 128) * maximum / 127.
    """

    values: Tensor
    maxima: Tensor


class QuantizedMatrix(nn.Module):
    """A matrix with one scale per output, W[o, i] = quantized[o, i] * scales[o].

    Attributes:
        quantized: int8 [out, in].
        scales: float [out].
    """

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
        """Returns states times the transposed matrix: float [..., in] -> float [..., out]."""
        # Transposed when the model is loaded: the rows may be embeddings, too, and are stored once.
        # The 127 of the activations is divided out here, once, and not in every step.
        return self._multiply(quantize_rows(states), self.quantized.T, self.scales / LARGEST)

    def rows(self, ids: Tensor) -> Tensor:
        """Returns rows of the matrix: int64 [...] -> float [..., in]."""
        values = functional.embedding(ids, self.quantized).to(self.scales.dtype)
        return values * functional.embedding(ids, self.scales[:, None])


class QuantizedLinear(nn.Module):
    """`nn.Linear`, or the projection to the vocabulary, with 8-bit weights and activations."""

    def __init__(self, layer: nn.Linear | Projection, variant: GraphVariant) -> None:
        super().__init__()
        self.matrix = QuantizedMatrix(layer.weight, variant)
        self.bias = None if layer.bias is None else frozen(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Maps states [..., in] to [..., out]."""
        product = self.matrix.multiply(states)
        # Not the operator's own bias: it would be multiplied by the scale of the row.
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
    """Rounds each row to 255 levels, from the negative to the positive of its largest magnitude.

    Of a row that is all zero, which a rectified row may be, the values mean nothing: their product is taken by zero.
    """
    maxima = states.abs().amax(dim=-1, keepdim=True)
    return QuantizedRows(quantize(states / maxima, torch.tensor(1 / LARGEST), zero_point()), maxima)


def multiply_by_contrib(rows: QuantizedRows, matrix: Tensor, scales: Tensor) -> Tensor:
    """Multiplies and scales in one operator of ONNX Runtime's.

    Args:
        rows: the activations, [..., in].
        matrix: int8 [in, out].
        scales: of its columns, over the activations' 127, float [out].

    Returns:
        Float [..., out].
    """
    return multiply_to_float(rows.values, matrix, rows.maxima, scales, zero_point())


def multiply_by_standard(rows: QuantizedRows, matrix: Tensor, scales: Tensor) -> Tensor:
    """Does the same as `multiply_by_contrib` with standard operators."""
    return multiply_integers(rows.values, matrix, zero_point()).to(scales.dtype) * rows.maxima * scales


def zero_point() -> Tensor:
    """Returns the activation that means zero, as the tensor that the operators want."""
    return torch.tensor(ZERO_POINT, dtype=torch.uint8)
