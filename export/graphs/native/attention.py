"""Attention over blocks of 16 positions, as nodes of a function body.

Every block is a product of its own, and blocks add up in order. The bits of a row therefore do not depend on how many
empty blocks follow its own ones.

Shapes: B rows or sources, n blocks, H heads, D head size, T queries per row: 1 in a decoder step.
"""

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from dragoman.export.graphs.native.body import Body
from dragoman.export.graphs.native.distances import LayerDistances
from dragoman.export.graphs.native.layers import round_to
from dragoman.export.graphs.native.layout import LANES, MAX_INT8
from dragoman.model.config import TransformerConfig
from dragoman.serve.bundle.manifest import CacheSpec

# Attention weights are not negative.
MAX_UNSIGNED = 255
# Axes of the blocks and of the positions in scores.
BLOCKS, POSITIONS = 1, 4


class KeysValues(NamedTuple):
    """Keys, float [B, n, H, D, 16], and values, float [B, n, H, 16, D].

    In 8 bits they are integers, and `scales` has what to multiply them with, each float [B, n, H, 1, 16].
    """

    keys: str
    values: str
    scales: tuple[str, ...] = ()


class Attended(NamedTuple):
    """The result of attention, float [B, 1, H, T, D], and its weights, float [B, n, H, T, 16]."""

    states: str
    weights: str


class Attention(ABC):
    """The attention of one precision."""

    def __init__(self, body: Body, config: TransformerConfig) -> None:
        self.body = body
        self.heads, self.size = config.heads, config.head_size
        self.factor = 1 / math.sqrt(config.head_size)

    @abstractmethod
    def round(self, blocks: KeysValues) -> KeysValues:
        """Rounds float keys and values of any number of positions as the cache keeps them."""

    @abstractmethod
    def attend(self, query: str, blocks: KeysValues, valid: str, distances: LayerDistances | None = None) -> Attended:
        """Returns softmax(Q K^T / sqrt(D)) V.

        Args:
            query: float [B, 1, H, T, D].
            blocks: keys and values; those of positions that are not valid may be anything.
            valid: bool [B, n, 1, 1, 16].
            distances: what self-attention adds to scores and values; None: nothing.
        """

    def softmax(self, scores: str, valid: str) -> tuple[str, str]:
        """Returns exp(scores - maximum), 0 where not valid, and its sum, [B, n, H, T, 16] and [B, 1, H, T, 1]."""
        body = self.body
        masked = body.add("Where", valid, scores, body.number(-np.inf))
        weights = body.add("Exp", body.add("Sub", masked, body.largest(masked, BLOCKS, POSITIONS)))
        return weights, body.total(body.add("ReduceSum", weights, body.integers(POSITIONS), keepdims=1), BLOCKS)

    def where_valid(self, valid: str, value: str) -> str:
        """Replaces what is not valid by zero: a former row may have left NaN there, and 0 * NaN is NaN."""
        return self.body.add("Where", valid, value, self.body.number(0))

    def query(self, states: str) -> str:
        """Splits the query of one position per row into heads, [B, H * D] -> [B, 1, H, 1, D]."""
        return self.body.reshape(states, -1, 1, self.heads, 1, self.size)

    def new_position(self, key: str, value: str) -> KeysValues:
        """Splits keys and values of one position per row into heads, [B, H * D] -> [B, 1, H, D, 1], [B, 1, H, 1, D]."""
        return self.round(KeysValues(self.body.reshape(key, -1, 1, self.heads, self.size, 1), self.query(value)))

    def new_blocks(self, key: str, value: str) -> KeysValues:
        """Splits keys and values of padded rows into float blocks, [B, 16 n, H * D] each."""
        body = self.body
        keys, values = (body.reshape(item, 0, -1, LANES, self.heads, self.size) for item in (key, value))
        return KeysValues(body.transpose(keys, 0, 1, 3, 4, 2), body.transpose(values, 0, 1, 3, 2, 4))


class FloatAttention(Attention):
    """Attention in float32."""

    def round(self, blocks: KeysValues) -> KeysValues:
        """Changes nothing."""
        return blocks

    def attend(self, query: str, blocks: KeysValues, valid: str, distances: LayerDistances | None = None) -> Attended:
        """Multiplies floats."""
        body = self.body
        scaled = body.add("Mul", query, body.number(self.factor))
        scores = body.add("MatMul", scaled, blocks.keys)
        if distances is not None:
            scores = distances.add_scores(scores, scaled)
        weights, sums = self.softmax(scores, valid)
        products = body.add("MatMul", weights, self.where_valid(body.transpose(valid, 0, 1, 2, 4, 3), blocks.values))
        states = body.add("Div", body.total(products, BLOCKS), sums)
        if distances is not None:
            states = distances.add_mean(states, weights, sums)
        return Attended(states, body.add("Div", weights, sums))


class IntegerAttention(Attention):
    """Attention with 8-bit queries, keys, values and weights; products are exact."""

    def round(self, blocks: KeysValues) -> KeysValues:
        """Gives every position and head a scale for its key and one for its value."""
        keys, key_scale = round_to(self.body, blocks.keys, MAX_INT8, 3)
        values, value_scale = round_to(self.body, blocks.values, MAX_INT8, 4)
        return KeysValues(keys, values, (key_scale, self.body.transpose(value_scale, 0, 1, 2, 4, 3)))

    def attend(self, query: str, blocks: KeysValues, valid: str, distances: LayerDistances | None = None) -> Attended:
        """Rounds the query per head, and the weights times the scales of the values."""
        body = self.body
        key_scales, value_scales = blocks.scales
        rounded = round_to(body, query, MAX_INT8, 4)
        factor = body.add("Mul", rounded.scale, body.number(self.factor))
        scores = body.add("Mul", body.add("MatMul", rounded.integers, blocks.keys), body.add("Mul", factor, key_scales))
        if distances is not None:
            scores = distances.add_scores(scores, body.add("Mul", query, body.number(self.factor)))
        weights, sums = self.softmax(scores, valid)
        scaled = body.add("Mul", weights, self.where_valid(valid, value_scales))
        shares = round_to(body, scaled, MAX_UNSIGNED, BLOCKS, POSITIONS)
        total = body.total(body.add("MatMul", shares.integers, blocks.values), BLOCKS)
        states = body.add("Mul", total, body.add("Div", shares.scale, sums))
        if distances is not None:
            states = distances.add_mean(states, weights, sums)
        return Attended(states, body.add("Div", weights, sums))


def attention_of(body: Body, config: TransformerConfig, spec: CacheSpec) -> Attention:
    """Returns the attention over a cache."""
    return (FloatAttention if spec.element == "float" else IntegerAttention)(body, config)
