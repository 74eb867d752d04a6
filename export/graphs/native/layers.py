"""Sub-layers as nodes of a function body, over plain rows: float [rows, width].

`FloatLayers` and `IntegerLayers` differ in their matrix products. Weights have the names of
`dragoman.export.graphs.native.weights` and the layout of `dragoman.export.graphs.native.layout`; ONNX Runtime reorders
them once, when it loads the graph.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from dragoman.export.graphs.native.body import Body
from dragoman.export.graphs.native.layout import GROUP, LANES, MAX_INT8, TABLES, ZERO_POINT, rounded_up
from dragoman.model.config import TransformerConfig
from dragoman.serve.bundle.manifest import CacheSpec


class Layers(ABC):
    """The sub-layers of a Transformer."""

    def __init__(self, body: Body, config: TransformerConfig) -> None:
        self.body = body
        self.config = config

    def embed(self, ids: str, positions: str, side: str, table: str, scale: float) -> str:
        """Returns the input of the first layer, [rows, d_model]; ids and positions are int64 [rows]."""
        scaled = self.body.add("Mul", self.rows_of(table, ids), self.body.number(scale))
        states = self.body.add("Add", scaled, self.body.add("Gather", f"{side}_positions.table", positions))
        return self.norm(states, f"{side}_embedding_norm") if self.config.norm_embeddings else states

    def norm(self, states: str, name: str) -> str:
        """Normalizes each row."""
        if self.config.norm == "rms":
            return self.body.add("RMSNormalization", states, f"{name}.weight", epsilon=self.config.norm_epsilon)
        inputs = (states, f"{name}.weight", f"{name}.bias")
        return self.body.add("LayerNormalization", *inputs, epsilon=self.config.norm_epsilon)

    def final_norm(self, states: str, name: str) -> str:
        """Normalizes the result of a pre-norm stack."""
        return self.norm(states, name) if self.config.norm_position == "pre" else states

    def residual(self, states: str, name: str, sublayer: Callable[[str], str]) -> str:
        """Applies a sub-layer with its residual connection."""
        norm = f"{name}_residual.norm"
        if self.config.norm_position == "pre":
            return self.body.add("Add", states, sublayer(self.norm(states, norm)))
        return self.norm(self.body.add("Add", states, sublayer(states)), norm)

    def feed_forward(self, name: str, states: str) -> str:
        """Applies a feed-forward network."""
        config, width = self.config, self.config.d_ff
        inner = self.linear(states, f"{name}.inner", config.d_model, width)
        if config.gated:
            gate = self._activate(self.linear(states, f"{name}.gate", config.d_model, width))
            inner = self.body.add("Mul", gate, inner)
        else:
            inner = self._activate(inner)
        return self.linear(inner, f"{name}.outer", width, config.d_model)

    def _activate(self, states: str) -> str:
        body, activation = self.body, self.config.inner_activation
        if activation == "silu":
            return body.add("Mul", states, body.add("Sigmoid", states))
        if activation == "gelu_tanh":
            return body.add("Gelu", states, approximate="tanh")
        return body.add({"relu": "Relu", "gelu": "Gelu"}[activation], states)

    def cut(self, value: str, outputs: int, axis: int) -> str:
        """Returns a padded axis without its padding."""
        return value if outputs % LANES == 0 else self.body.first(value, outputs, axis)

    def matrix(self, name: str, inputs: int, outputs: int) -> str:
        """Returns W^T of a linear layer, [K, N]."""
        if self.config.needs_standard_graphs and name not in TABLES:
            return f"{name}.weight"
        return self.cut(self.from_blocks(name, inputs, outputs), outputs, 1)

    @abstractmethod
    def from_blocks(self, name: str, inputs: int, outputs: int) -> str:
        """Returns W^T of blocks with the padding of its outputs, [K, Np]."""

    @abstractmethod
    def linear(self, states: str, name: str, inputs: int, outputs: int) -> str:
        """Returns x W^T + b, [rows, inputs] -> [rows, outputs]."""

    @abstractmethod
    def rows_of(self, table: str, ids: str) -> str:
        """Returns rows of an embedding table, int64 [rows] -> float [rows, d_model]."""

    def _blocks_of(self, table: str, ids: str, order: Sequence[int]) -> str:
        """Returns rows of blocks: of a block, the axis of its 16 outputs is moved to the front by `order`."""
        body = self.body
        lanes = body.integers(LANES)
        blocks = body.add("Gather", f"{table}.weight", body.add("Div", ids, lanes))
        lane = body.unsqueeze(body.add("Mod", ids, lanes), 1)
        return body.add("GatherND", body.transpose(blocks, 0, *order), lane, batch_dims=1)


class FloatLayers(Layers):
    """Products of float32."""

    def linear(self, states: str, name: str, inputs: int, outputs: int) -> str:
        """Multiplies floats."""
        product = self.body.add("MatMul", states, self.matrix(name, inputs, outputs))
        return self.body.add("Add", product, self.cut(f"{name}.bias", outputs, 0))

    def from_blocks(self, name: str, inputs: int, outputs: int) -> str:
        """Reorders float32 [Np / 16, K, 16]."""
        return self.body.reshape(self.body.transpose(f"{name}.weight", 1, 0, 2), inputs, rounded_up(outputs, LANES))

    def rows_of(self, table: str, ids: str) -> str:
        """Gathers blocks, [K, 16], and one output of each."""
        return self._blocks_of(table, ids, (2, 1))


class Rounded(NamedTuple):
    """Values rounded to integers: `integers`, still of type float, times `scale` are the values."""

    integers: str
    scale: str


def round_to(body: Body, value: str, levels: int, *axes: int) -> Rounded:
    """Rounds to multiples of 1 / levels of the largest magnitude over axes, half to even."""
    largest = body.largest(body.add("Abs", value), *axes)
    positive = body.add("Where", body.add("Equal", largest, body.number(0)), body.number(1), largest)
    factor = body.add("Div", body.number(levels), positive)
    return Rounded(body.add("Round", body.add("Mul", value, factor)), body.add("Div", largest, body.number(levels)))


class IntegerLayers(Layers):
    """Exact products of 8-bit integers; activations have one scale per row, matrices one per output."""

    def linear(self, states: str, name: str, inputs: int, outputs: int) -> str:
        """Multiplies integers."""
        body = self.body
        rounded = round_to(body, states, MAX_INT8, 1)
        shifted = body.cast(body.add("Add", rounded.integers, body.number(ZERO_POINT)), TensorProto.UINT8)
        zero_point = body.constant(np.array(ZERO_POINT, np.uint8))
        product = body.add("MatMulInteger", shifted, self.matrix(name, inputs, outputs), zero_point)
        # One scale after the other: ONNX Runtime would fuse a product of both, and then scale the bias as well.
        scaled = body.add("Mul", body.cast(product, TensorProto.FLOAT), rounded.scale)
        scaled = body.add("Mul", scaled, self.cut(f"{name}.scale", outputs, 0))
        return body.add("Add", scaled, self.cut(f"{name}.bias", outputs, 0))

    def from_blocks(self, name: str, inputs: int, outputs: int) -> str:
        """Reorders int8 [Np / 16, Kp / 4, 16, 4]."""
        body = self.body
        groups = body.transpose(f"{name}.weight", 1, 3, 0, 2)  # [Kp / 4, 4, Np / 16, 16]
        matrix = body.reshape(groups, rounded_up(inputs, GROUP), rounded_up(outputs, LANES))
        return body.first(matrix, inputs, 0) if inputs % GROUP else matrix

    def rows_of(self, table: str, ids: str) -> str:
        """Gathers blocks, [Kp / 4, 16, 4], and one output of each."""
        body = self.body
        groups = self._blocks_of(table, ids, (2, 1, 3))
        values = body.cast(body.reshape(groups, 0, self.config.d_model), TensorProto.FLOAT)
        return body.add("Mul", values, body.unsqueeze(body.add("Gather", f"{table}.scale", ids), 1))


def layers_of(body: Body, config: TransformerConfig, spec: CacheSpec) -> Layers:
    """Returns the layers of the precision that a cache has."""
    return (FloatLayers if spec.element == "float" else IntegerLayers)(body, config)
