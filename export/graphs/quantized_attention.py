"""Attention with an int8 KV cache, which reads a quarter of the memory of float32.

Every cache has one scale, fixed at export, so a row's result depends on no other row. New values are rounded before
attention reads them, so every position sees the same values.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.onnx.ops import symbolic_multi_out

from export.graphs.attention import OPERATOR, ContribAttention, int32_scalar, nothing_new
from export.graphs.quantized_layers import quantize
from model.network.attention import KeysValues
from serve.bundle.manifest import Element

# Operator inputs between lengths and scales: rotary embeddings, biases and sinks.
UNUSED = (None,) * 5


class CacheScales(NamedTuple):
    """The scales of the caches of one decoder layer, all positive."""

    self_key: float
    self_value: float
    cross_key: float
    cross_value: float


class QuantizedAttention(ContribAttention):
    """Decoder attention with int8 caches; the encoder's attention is inherited."""

    element: Element = "int8"

    def __init__(self, heads: int, layers: Sequence[CacheScales], layer: int = 0) -> None:
        """Takes the scales of all decoder layers; `layer` selects the current one."""
        super().__init__(heads)
        self.layers = layers
        self.scales = layers[layer]

    def in_decoder_layer(self, number: int) -> "QuantizedAttention":
        """Returns the operators with the scales of a layer."""
        return QuantizedAttention(self.heads, self.layers, number)

    def keep(self, source: KeysValues) -> KeysValues:
        """Quantizes source keys and values to int8."""
        return KeysValues(_round(source.keys, self.scales.cross_key), _round(source.values, self.scales.cross_value))

    def kept_keys(self, key: Tensor) -> Tensor:
        """Dequantizes cached source keys."""
        return key.float() * self.scales.cross_key

    def attend_in_target(
        self, qkv: Tensor, past_key: Tensor, past_value: Tensor, positions: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Passes the scales of the self-attention cache."""
        scales = self.scales.self_key, self.scales.self_value
        return self._attend([qkv, None, None], KeysValues(past_key, past_value), positions, scales)

    def attend_to_source(
        self, query: Tensor, key: Tensor, value: Tensor, lengths: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Passes the scales of the cross-attention cache. Both caches are outputs, so that they are not copied."""
        scales = self.scales.cross_key, self.scales.cross_value
        nothing = nothing_new(query)
        output, *caches = self._attend([query, nothing, nothing], KeysValues(key, value), lengths - 1, scales)
        return output, tuple(caches)

    def _attend(
        self, new: Sequence[Tensor | None], caches: KeysValues, lengths: Tensor, scales: tuple[float, float]
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, heads, capacity, head_size = caches.keys.shape
        constants = (torch.tensor([scale]) for scale in scales)
        attended, present_key, present_value = symbolic_multi_out(
            OPERATOR,
            [*new, *caches, lengths, int32_scalar(capacity), *UNUSED, *constants],
            {
                "num_heads": heads,
                "kv_num_heads": heads,
                "k_quant_type": "PER_TENSOR",
                "v_quant_type": "PER_TENSOR",
                "kv_cache_bit_width": 8,
            },
            dtypes=(torch.float32, torch.int8, torch.int8),
            shapes=((rows, 1, heads * head_size), caches.keys.shape, caches.values.shape),
            version=1,
        )
        return attended, present_key, present_value


def _round(values: Tensor, scale: float) -> Tensor:
    return quantize(values, torch.tensor(scale), torch.tensor(0, dtype=torch.int8))
