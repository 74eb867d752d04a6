"""The weights of a Transformer in the order and layout in which the native operators take them, and back.

A weight has the name of its parameter. The query, key and value matrices of an attention are one matrix, `qkv` or
`key_value`; the matrix that makes logits is `output`.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from export.graphs.native.layout import (
    LANES,
    offsets,
    pack_floats,
    pack_integers,
    padded,
    quantize,
    rounded_up,
    unpack_floats,
)
from model.network.attention import MultiHeadAttention
from model.network.layers import EncoderLayer, FeedForward, GatedFeedForward, Residual
from model.network.transformer import Transformer
from serve.bundle.manifest import Precision

# Arrays by name; their order is that of the operator's inputs.
Weights = dict[str, NDArray[Any]]


class WeightWriter:
    """Collects weights in one precision."""

    def __init__(self, precision: Precision) -> None:
        self.weights: Weights = {}
        self._precision = precision

    def table(self, name: str, weight: Tensor) -> None:
        """Adds an embedding table, [V, d_model], in the layout of a matrix."""
        self._matrix(name, _array(weight), with_offset=False)

    def positions(self, name: str, weight: Tensor) -> None:
        """Adds position vectors, [P, d_model]."""
        self.weights[f"{name}.table"] = _array(weight)

    def linear(self, name: str, weight: Tensor, bias: Tensor | None, filler: float = 0) -> None:
        """Adds a matrix [N, K] and its bias [N]; padded outputs have the bias `filler`."""
        self._matrix(name, _array(weight), with_offset=True)
        values = np.zeros(len(weight), np.float32) if bias is None else _array(bias)
        self.weights[f"{name}.bias"] = padded(values, rounded_up(len(values), LANES), filler)

    def packed(self, name: str, *parts: nn.Linear) -> None:
        """Adds matrices with the same input as one matrix."""
        self.linear(name, torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))

    def norm(self, name: str, norm: nn.Module) -> None:
        """Adds a gain and, for layer normalization, a bias; nothing for the identity."""
        for part, value in norm.named_parameters():
            self.weights[f"{name}.{part}"] = _array(value)

    def residual(self, name: str, residual: Residual) -> None:
        """Adds the normalization of a residual connection."""
        self.norm(f"{name}.norm", residual.norm)

    def module(self, name: str, linear: nn.Linear) -> None:
        """Adds a linear layer."""
        self.linear(name, linear.weight, linear.bias)

    def feed_forward(self, name: str, network: FeedForward | GatedFeedForward) -> None:
        """Adds a feed-forward network, the gate first."""
        if isinstance(network, GatedFeedForward):
            self.module(f"{name}.gate", network.gate)
        self.module(f"{name}.inner", network.inner)
        self.module(f"{name}.outer", network.outer)

    def self_attention(self, name: str, attention: MultiHeadAttention) -> None:
        """Adds the projections of queries, keys and values as one, and that of the result."""
        self.packed(f"{name}.qkv", attention.query, attention.key, attention.value)
        self.module(f"{name}.output", attention.output)

    def _matrix(self, name: str, matrix: NDArray[np.float32], *, with_offset: bool) -> None:
        if self._precision == "fp32":
            self.weights[f"{name}.weight"] = pack_floats(matrix)
            return
        quantized = quantize(matrix)
        packed = pack_integers(quantized.values)
        self.weights[f"{name}.weight"] = packed
        self.weights[f"{name}.scale"] = padded(quantized.scales, rounded_up(len(matrix), LANES))
        if with_offset:
            self.weights[f"{name}.offset"] = offsets(packed)


def encoder_weights(model: Transformer, precision: Precision) -> Weights:
    """Returns the weights of `Encode`: of the encoder and of the projections to keys and values of the decoder."""
    writer = WeightWriter(precision)
    writer.table("embedding", model.source_weight)
    writer.positions("source_positions", model.source_positions.table)
    for number, layer in enumerate(model.encoder_layers):
        _encoder_layer(writer, f"encoder.{number}", layer)
    writer.norm("encoder_norm", model.encoder_norm)
    for number, decoder in enumerate(model.decoder_layers):
        attention = decoder.cross_attention
        writer.packed(f"decoder.{number}.cross_attention.key_value", attention.key, attention.value)
    return writer.weights


def _encoder_layer(writer: WeightWriter, name: str, layer: EncoderLayer) -> None:
    writer.self_attention(f"{name}.self_attention", layer.self_attention)
    writer.residual(f"{name}.self_attention_residual", layer.self_attention_residual)
    writer.feed_forward(f"{name}.feed_forward", layer.feed_forward)
    writer.residual(f"{name}.feed_forward_residual", layer.feed_forward_residual)


def decoder_weights(model: Transformer, precision: Precision) -> Weights:
    """Returns the weights of `Step`."""
    writer = WeightWriter(precision)
    writer.table("target_embedding", model.target_weight)
    writer.positions("target_positions", model.target_positions.table)
    for number, layer in enumerate(model.decoder_layers):
        name = f"decoder.{number}"
        writer.self_attention(f"{name}.self_attention", layer.self_attention)
        writer.residual(f"{name}.self_attention_residual", layer.self_attention_residual)
        writer.module(f"{name}.cross_attention.query", layer.cross_attention.query)
        writer.module(f"{name}.cross_attention.output", layer.cross_attention.output)
        writer.residual(f"{name}.cross_attention_residual", layer.cross_attention_residual)
        writer.feed_forward(f"{name}.feed_forward", layer.feed_forward)
        writer.residual(f"{name}.feed_forward_residual", layer.feed_forward_residual)
    writer.norm("decoder_norm", model.decoder_norm)
    writer.linear("output", model.output_weight, model.output_bias, filler=-np.inf)
    return writer.weights


# The parts of a packed matrix.
PARTS = {"qkv": ("query", "key", "value"), "key_value": ("key", "value")}
OUTPUT_BIAS, BLOCK_AXES = "output.bias", 3


def float_parameters(weights: Weights) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Yields the parameters of float32 weights, named as in `Transformer`, with padded outputs."""
    for name, value in weights.items():
        owner, _, kind = name.rpartition(".")
        array = unpack_floats(value) if value.ndim == BLOCK_AXES else value
        module, _, packed = owner.rpartition(".")
        if packed not in PARTS:
            yield ("output_bias" if name == OUTPUT_BIAS else name), array
            continue
        parts = PARTS[packed]
        width = weights[f"{owner}.weight"].shape[1]
        for part, split in zip(parts, np.split(array[: width * len(parts)], len(parts)), strict=True):
            yield f"{module}.{part}.{kind}", split


def _array(value: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(value.detach().numpy())
