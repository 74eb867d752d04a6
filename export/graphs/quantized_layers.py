"""Dynamic quantization in standard operators: 8-bit layers in which a row's result depends on no other row.

Weights have one scale per column, activations one per row. With the usual scale per batch, one large activation would
reduce the precision of every row. Activations are uint8 with zero point 128: x86 integer units multiply unsigned by
signed. The modules can be exported, but not run by PyTorch.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.onnx.ops import symbolic

from dragoman.export.graphs.transformer import Embedding, Projection, frozen

# Symmetric: -128 is not used.
MAX_INT8 = 127
ZERO_POINT = 128
# A column that is all zero has this maximum; any positive scale works.
MIN_MAGNITUDE = 1e-12


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

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        largest = weight.detach().abs().amax(dim=1).clamp(min=MIN_MAGNITUDE)
        scales = largest / MAX_INT8
        self.register_buffer("quantized", (weight.detach() / scales[:, None]).round().to(torch.int8))
        self.register_buffer("scales", scales)

    def multiply(self, states: Tensor) -> Tensor:
        """Multiplies states by the transposed matrix: float [..., in] -> float [..., out]."""
        rows = quantize_rows(states)
        # ONNX Runtime transposes once, at load time: the matrix is stored once even if it also holds embeddings.
        product: Tensor = symbolic(
            "::MatMulInteger",
            [rows.values, self.quantized.T, zero_point()],
            dtype=torch.int32,
            shape=(*states.shape[:-1], len(self.quantized)),
        )
        # Dividing the column scales by 127, the scale of the activations, saves a division in every step.
        return product.to(self.scales.dtype) * rows.maxima * (self.scales / MAX_INT8)

    def rows(self, ids: Tensor) -> Tensor:
        """Gathers rows of the matrix: int64 [...] -> float [..., in]."""
        values = functional.embedding(ids, self.quantized).to(self.scales.dtype)
        return values * functional.embedding(ids, self.scales[:, None])


class QuantizedLinear(nn.Module):
    """`nn.Linear` or the output projection, with 8-bit weights and activations."""

    def __init__(self, layer: nn.Linear | Projection) -> None:
        super().__init__()
        self.matrix = QuantizedMatrix(layer.weight)
        self.bias = None if layer.bias is None else frozen(layer.bias)

    def forward(self, states: Tensor) -> Tensor:
        """Maps states [..., in] to [..., out]."""
        product = self.matrix.multiply(states)
        return product if self.bias is None else product + self.bias


class QuantizedEmbedding(nn.Module):
    """`Embedding` with 8-bit weights."""

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.matrix = QuantizedMatrix(embedding.weight)
        self.scale = embedding.scale

    def forward(self, ids: Tensor) -> Tensor:
        """Maps ids [...] to embeddings [..., d_model]."""
        return self.matrix.rows(ids) * self.scale


def quantize_rows(states: Tensor) -> QuantizedRows:
    """Rounds each row to 255 levels between minus and plus its largest magnitude.

    The values of an all-zero row (possible after ReLU) are undefined; the product multiplies them by zero.
    """
    maxima = states.abs().amax(dim=-1, keepdim=True)
    scaled = states / maxima
    inputs = [scaled, torch.tensor(1 / MAX_INT8), zero_point()]
    values: Tensor = symbolic("::QuantizeLinear", inputs, dtype=torch.uint8, shape=states.shape)
    return QuantizedRows(values, maxima)


def zero_point() -> Tensor:
    """Returns the zero point of activations, uint8."""
    return torch.tensor(ZERO_POINT, dtype=torch.uint8)
