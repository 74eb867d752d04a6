"""Random Transformers in the layouts of the native kernels, and what their operators should compute, in plain NumPy.

The reference computes in float64, one row at a time, in the order of the paper. With 8 bits it rounds where the kernels
round, so that results agree unless a value lies at the edge of rounding.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tests.support.reference import ACTIVATIONS, layer_norm, rms_norm, softmax

Array = NDArray[Any]
BLOCK = 16  # outputs of a block of weights, positions of a block of a cache


@dataclass(frozen=True)
class Shape:
    """The shape of a model, as the attributes of the operators give it."""

    heads: int = 2
    d_model: int = 16
    d_ff: int = 24
    layers: int = 2
    decoder_layers: int = 2
    vocabulary: int = 37
    max_positions: int = 40
    norm: Literal["layer", "rms"] = "layer"
    pre_norm: bool = False
    recurrent: bool = False
    activation: Literal["relu", "gelu", "silu", "swiglu"] = "relu"
    precision: Literal["fp32", "int8"] = "fp32"
    tied: bool = True
    embedding_scale: float = 3.0
    epsilon: float = 1e-5
    alignment_heads: tuple[tuple[int, int], ...] = ()

    @property
    def head_size(self) -> int:
        return self.d_model // self.heads

    @property
    def int8(self) -> bool:
        return self.precision == "int8"

    def attributes(self) -> dict[str, Any]:
        names = ("layers", "decoder_layers", "heads", "d_model", "d_ff", "norm", "activation", "precision")
        values = {name: getattr(self, name) for name in names}
        return values | {
            "pre_norm": int(self.pre_norm),
            "recurrent": int(self.recurrent),
            "embedding_scale": self.embedding_scale,
            "epsilon": self.epsilon,
        }


def round_up(count: int, multiple: int) -> int:
    return -(-count // multiple) * multiple


@dataclass
class Linear:
    """y = x W^T + b: weight [N, K], and for 8 bits q [N, K] with a scale per row, so that W = q * scale."""

    weight: Array
    bias: Array
    int8: bool
    q: Array = field(init=False)
    scale: Array = field(init=False)

    def __post_init__(self) -> None:
        """Rounds the weight to 8 bits if the model has them."""
        self.scale = (np.abs(self.weight).max(axis=1, initial=0) / 127).astype(np.float32)
        safe = np.where(self.scale > 0, self.scale, 1)[:, None]
        self.q = np.rint(self.weight / safe).astype(np.int8)
        if self.int8:
            self.weight = self.q * self.scale[:, None].astype(np.float64)

    def __call__(self, x: Array) -> Array:
        """Returns y [N] of x [K]."""
        if not self.int8:
            return self.weight @ x + self.bias
        q, scale = quantize(x, 127)
        return (self.q.astype(np.int64) @ q) * self.scale.astype(np.float64) * scale + self.bias

    def tensors(self, padded_bias: float = 0.0) -> list[Array]:
        outputs = len(self.q)
        bias = np.full(round_up(outputs, BLOCK), padded_bias, np.float32)
        bias[:outputs] = self.bias
        if not self.int8:
            return [blocks(self.weight.astype(np.float32)), bias]
        offset = np.zeros(len(bias), np.int32)
        offset[:outputs] = -128 * self.q.astype(np.int32).sum(axis=1)
        return [quad_blocks(self.q), padded(self.scale), offset, bias]

    def table(self) -> list[Array]:
        return [quad_blocks(self.q), padded(self.scale)] if self.int8 else [blocks(self.weight.astype(np.float32))]


def padded(values: Array) -> Array:
    """Returns [N] with zeros up to a whole block."""
    return np.pad(values, (0, round_up(len(values), BLOCK) - len(values)))


def blocks(weight: Array) -> Array:
    """[N, K] -> [Np / 16, K, 16]."""
    rows = np.pad(weight, ((0, round_up(len(weight), BLOCK) - len(weight)), (0, 0)))
    return np.ascontiguousarray(rows.reshape(-1, BLOCK, weight.shape[1]).transpose(0, 2, 1))


def quad_blocks(q: Array) -> Array:
    """[N, K] -> [Np / 16, Kp / 4, 16, 4]."""
    outputs, inputs = q.shape
    rows = np.pad(q, ((0, round_up(outputs, BLOCK) - outputs), (0, round_up(inputs, 4) - inputs)))
    return np.ascontiguousarray(rows.reshape(rows.shape[0] // BLOCK, BLOCK, -1, 4).transpose(0, 2, 1, 3))


def quantize(x: Array, levels: int) -> tuple[Array, float]:
    """Returns integers q and a scale with x ~ q * scale, where the largest |q| is `levels`."""
    largest = float(np.abs(x).max(initial=0))
    if largest == 0:
        return np.zeros(len(x), np.int64), 0.0
    factor = np.float32(levels) / np.float32(largest)
    return np.rint(x.astype(np.float32) * factor).astype(np.int64), float(np.float32(largest) / np.float32(levels))


@dataclass
class Norm:
    """Layer or RMS normalization."""

    gain: Array
    bias: Array | None
    epsilon: float

    def __call__(self, x: Array) -> Array:
        if self.bias is None:
            return rms_norm(x, self.gain, self.epsilon)
        return layer_norm(x, self.gain, self.bias, self.epsilon)

    def tensors(self) -> list[Array]:
        return [self.gain] if self.bias is None else [self.gain, self.bias]


@dataclass
class FeedForward:
    """A feed-forward network, gated if `gate` is given."""

    gate: Linear | None
    inner: Linear
    outer: Linear
    norm: Norm
    activation: str

    def __call__(self, x: Array) -> Array:
        if self.gate is None:
            return self.outer(ACTIVATIONS[self.activation](self.inner(x)))
        return self.outer(ACTIVATIONS["silu"](self.gate(x)) * self.inner(x))

    def tensors(self) -> list[Array]:
        gate = [] if self.gate is None else self.gate.tensors()
        return [*gate, *self.inner.tensors(), *self.outer.tensors(), *self.norm.tensors()]


def attend(query: Array, keys: Array, values: Array) -> tuple[Array, Array]:
    """One head in float: query [D], keys and values [T, D] -> output [D], weights [T]."""
    weights = softmax(keys @ query / math.sqrt(len(query)))
    return weights @ values, weights


def attend_int8(query: Array, keys: Array, values: Array) -> tuple[Array, Array]:
    """The same with query, keys, values and weights in 8 bits."""
    q, scale = quantize(query, 127)
    rows = [quantize(key, 127) for key in keys]
    scores = np.array([float(q @ key) * scale * key_scale for key, key_scale in rows]) / math.sqrt(len(query))
    weights = softmax(scores)
    pairs = [quantize(value, 127) for value in values]
    exponentials = np.exp(scores - scores.max())
    w, weight_scale = quantize(exponentials * np.array([value_scale for _, value_scale in pairs]), 255)
    total = w @ np.array([value for value, _ in pairs])
    return total * weight_scale / exponentials.sum(), weights


def output_of(linear: Linear, attended: Array) -> Callable[[Array], Array]:
    """Returns a sub-layer whose attention was computed before."""
    return lambda _: linear(attended)


class Transformer:
    """A model with random weights."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.shape = shape
        self._random = np.random.default_rng(seed)
        d = shape.d_model
        self.source_embedding = self._linear(shape.vocabulary, d)
        self.embedding = self.source_embedding if shape.tied else self._linear(shape.vocabulary, d)
        self.positions = self._random.normal(size=(shape.max_positions, d)).astype(np.float32)
        self.encoder_layers: list[dict[str, Any]] = [
            {"qkv": self._linear(3 * d, d), "out": self._linear(d, d), "norm": self._norm(), "ff": self._feed_forward()}
            for _ in range(shape.layers)
        ]
        self.encoder_norm = self._norm()
        self.keys_values = [self._linear(2 * d, d) for _ in range(shape.decoder_layers)]
        self.decoder_layers: list[dict[str, Any]] = [
            {
                **self._memory(),
                "norm": self._norm(),
                "query": self._linear(d, d),
                "cross_out": self._linear(d, d),
                "cross_norm": self._norm(),
                "ff": self._feed_forward(),
            }
            for _ in range(shape.decoder_layers)
        ]
        self.decoder_norm = self._norm()
        source = self.embedding if shape.tied else self._linear(shape.vocabulary, d)
        self.vocabulary = Linear(source.weight, self._draw(shape.vocabulary), shape.int8)

    def _memory(self) -> dict[str, Linear]:
        """Returns the products by which a decoder layer reads earlier positions."""
        d = self.shape.d_model
        if self.shape.recurrent:
            return {"gates": self._linear(2 * d, d)}
        return {"qkv": self._linear(3 * d, d), "out": self._linear(d, d)}

    def residual(self, norm: Norm, x: Array, sublayer: Callable[[Array], Array]) -> Array:
        return x + sublayer(norm(x)) if self.shape.pre_norm else norm(x + sublayer(x))

    def _draw(self, *size: int) -> Array:
        return self._random.normal(scale=1 / math.sqrt(size[-1]), size=size).astype(np.float32)

    def _linear(self, outputs: int, inputs: int) -> Linear:
        return Linear(self._draw(outputs, inputs), self._draw(outputs), self.shape.int8)

    def _norm(self) -> Norm:
        d = self.shape.d_model
        bias = self._draw(d) if self.shape.norm == "layer" else None
        return Norm((1 + self._draw(d)).astype(np.float32), bias, self.shape.epsilon)

    def _feed_forward(self) -> FeedForward:
        d, d_ff = self.shape.d_model, self.shape.d_ff
        gate = self._linear(d_ff, d) if self.shape.activation == "swiglu" else None
        return FeedForward(gate, self._linear(d_ff, d), self._linear(d, d_ff), self._norm(), self.shape.activation)

    def _embed(self, table: Linear, token: int, position: int) -> Array:
        embedded: Array = table.weight[token].astype(np.float64) * self.shape.embedding_scale + self.positions[position]
        return embedded

    def encode(self, token_ids: list[int]) -> list[tuple[Array, Array]]:
        """Returns keys and values, [T, d] each, of every decoder layer."""
        d, heads = self.shape.d_model, self.shape.heads
        states = [self._embed(self.source_embedding, token, t) for t, token in enumerate(token_ids)]
        for layer in self.encoder_layers:
            rows = np.array([layer["qkv"](layer["norm"](x) if self.shape.pre_norm else x) for x in states])
            for t, x in enumerate(states):
                parts = zip(*(np.split(rows[:, i * d : (i + 1) * d], heads, axis=1) for i in range(3)), strict=True)
                attended = np.concatenate([attend(q[t], k, v)[0] for q, k, v in parts])
                states[t] = self.residual(layer["norm"], x, output_of(layer["out"], attended))
                states[t] = self.residual(layer["ff"].norm, states[t], layer["ff"])
        outputs = [self.encoder_norm(x) if self.shape.pre_norm else x for x in states]
        pairs = [np.array([linear(x) for x in outputs]) for linear in self.keys_values]
        return [(pair[:, :d], pair[:, d:]) for pair in pairs]

    def step(self, row: "Row", token: int) -> tuple[Array, Array]:
        """Reads one token; returns logits [V] and alignments [A, T]."""
        shape = self.shape
        attention = attend_int8 if shape.int8 else attend
        x = self._embed(self.embedding, token, row.length)
        alignments: dict[tuple[int, int], Array] = {}

        def self_attention(i: int, layer: dict[str, Any], y: Array) -> Array:
            query, key, value = np.split(layer["qkv"](y), 3)
            row.keys[i].append(key)
            row.values[i].append(value)
            keys, values = np.array(row.keys[i]), np.array(row.values[i])
            output: Array = layer["out"](self._heads(attention, query, keys, values)[0])
            return output

        def recurrent_unit(i: int, layer: dict[str, Any], y: Array) -> Array:
            new, forget = np.split(layer["gates"](y), 2)
            share = 1 / (1 + np.exp(-forget))
            earlier = row.keys[i][-1] if row.keys[i] else 0
            row.keys[i].append(share * earlier + (1 - share) * new)
            return np.maximum(row.keys[i][-1], 0)

        def cross_attention(i: int, layer: dict[str, Any], y: Array) -> Array:
            output, weights = self._heads(attention, layer["query"](y), *row.source[i])
            alignments.update({(i, head): weights[head] for head in range(shape.heads)})
            projected: Array = layer["cross_out"](output)
            return projected

        for i, layer in enumerate(self.decoder_layers):
            memory = recurrent_unit if shape.recurrent else self_attention
            x = self.residual(layer["norm"], x, partial(memory, i, layer))
            x = self.residual(layer["cross_norm"], x, partial(cross_attention, i, layer))
            x = self.residual(layer["ff"].norm, x, layer["ff"])
        output = self.decoder_norm(x) if shape.pre_norm else x
        chosen = [alignments[head] for head in shape.alignment_heads]
        return self.vocabulary(output), np.array(chosen).reshape(len(chosen), len(row.source[0][0]))

    def _heads(self, attention: Callable[..., tuple[Array, Array]], query: Array, keys: Array, values: Array) -> Any:
        """All heads: query [d], keys and values [T, d] -> output [d], weights [H, T]."""
        size = self.shape.head_size
        parts = [slice(h * size, (h + 1) * size) for h in range(self.shape.heads)]
        results = [attention(query[part], keys[:, part], values[:, part]) for part in parts]
        return np.concatenate([output for output, _ in results]), np.array([weights for _, weights in results])

    def encoder_tensors(self) -> list[Array]:
        """Returns the weights of Encode in order."""
        tensors = [*self.source_embedding.table(), self.positions]
        for layer in self.encoder_layers:
            tensors += [*layer["qkv"].tensors(), *layer["out"].tensors(), *layer["norm"].tensors()]
            tensors += layer["ff"].tensors()
        if self.shape.pre_norm:
            tensors += self.encoder_norm.tensors()
        return tensors + [tensor for linear in self.keys_values for tensor in linear.tensors()]

    def decoder_tensors(self) -> list[Array]:
        """Returns the weights of Step in order."""
        tensors = [*self.embedding.table(), self.positions]
        for layer in self.decoder_layers:
            tensors += [tensor for part in layer.values() for tensor in part.tensors()]
        if self.shape.pre_norm:
            tensors += self.decoder_norm.tensors()
        return tensors + self.vocabulary.tensors(padded_bias=-math.inf)


class Row:
    """What the decoder keeps of one row; the keys of a recurrent unit are its states."""

    def __init__(self, source: list[tuple[Array, Array]]) -> None:
        """Begins with the keys and values of a source in every layer."""
        self.source = source
        self.keys: list[list[Array]] = [[] for _ in source]
        self.values: list[list[Array]] = [[] for _ in source]

    @property
    def length(self) -> int:
        return len(self.keys[0])


def choose(logits: Array, count: int) -> tuple[float, Array, Array]:
    """Returns log(sum(exp)), and the best scores and ids, of logits [V]."""
    if np.isnan(logits).any() or np.isposinf(logits).any() or np.isneginf(logits).all():
        return math.nan, np.full(count, math.nan), np.arange(count)
    wide = logits.astype(np.float64)
    log_sum = float(wide.max() + np.log(np.exp(wide - wide.max()).sum()))
    order = np.argsort(-wide, kind="stable")[:count]
    return log_sum, wide[order] - log_sum, order


def target_arrays(shape: Shape, slots: int, capacity: int) -> list[Array]:
    """Returns an empty target cache, or the states of recurrent units."""
    if shape.recurrent:
        return [np.zeros((slots, shape.decoder_layers, 1, shape.d_model), np.float32)]
    return cache_arrays(shape, slots, capacity)


def cache_arrays(shape: Shape, slots: int, capacity: int) -> list[Array]:
    """Returns an empty cache: values, and for 8 bits also scales."""
    size = round_up(shape.head_size, 4) if shape.int8 else shape.head_size
    axes = (slots, shape.decoder_layers, capacity // BLOCK, 2, shape.heads)
    values = np.zeros((*axes, BLOCK * size), np.int8 if shape.int8 else np.float32)
    return [values, np.zeros((*axes, BLOCK), np.float32)] if shape.int8 else [values]


def read_cache(shape: Shape, arrays: list[Array], slot: int, layer: int, length: int) -> tuple[Array, Array]:
    """Returns keys and values of a slot and layer, [length, d] each."""
    size, heads = shape.head_size, shape.heads
    keys, values = arrays[0][slot, layer, :, 0], arrays[0][slot, layer, :, 1]  # [blocks, H, 16 * size]
    count = len(keys)
    if shape.int8:
        keys = keys.reshape(count, heads, -1, BLOCK, 4).transpose(0, 3, 1, 2, 4)
        values = values.reshape(count, heads, 4, -1, 4).transpose(0, 2, 4, 1, 3)
    else:
        keys = keys.reshape(count, heads, size, BLOCK).transpose(0, 3, 1, 2)
        values = values.reshape(count, heads, BLOCK, size).transpose(0, 2, 1, 3)
    plain = [part.reshape(count * BLOCK, heads, -1)[..., :size].astype(np.float64) for part in (keys, values)]
    if shape.int8:
        scales = arrays[1][slot, layer].transpose(1, 0, 3, 2).reshape(2, count * BLOCK, heads, 1)
        plain = [part * scale for part, scale in zip(plain, scales, strict=True)]
    return plain[0].reshape(count * BLOCK, -1)[:length], plain[1].reshape(count * BLOCK, -1)[:length]
