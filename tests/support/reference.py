"""The formulas of the papers in NumPy and float64, slow and simple, as a reference for fast code."""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dragoman.model.config import TransformerConfig

Array = NDArray[np.float64]
# Parameters by their names in a checkpoint.
Parameters = dict[str, Array]


def softmax(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis=-1, keepdims=True))


def attention(queries: Array, keys: Array, values: Array, mask: NDArray[np.bool_]) -> Array:
    """Attends with one head: softmax(Q K^T / sqrt(D)) V, where the mask is True (Vaswani et al. 2017, equation 1).

    Queries are [T, D], keys and values [S, D], and the mask is [T, S].
    """
    rows = []
    for query, allowed in zip(queries, mask, strict=True):
        scores = np.array([query @ key / math.sqrt(len(query)) for key in keys[allowed]])
        rows.append(softmax(scores) @ values[allowed])
    return np.stack(rows)


def layer_norm(states: Array, weight: Array, bias: Array, epsilon: float = 1e-5) -> Array:
    """Returns (x - mean) / sqrt(variance + epsilon) * weight + bias (Ba et al. 2016), over the last axis."""
    mean = states.mean(axis=-1, keepdims=True)
    variance = ((states - mean) ** 2).mean(axis=-1, keepdims=True)
    return np.asarray((states - mean) / np.sqrt(variance + epsilon) * weight + bias)


def rms_norm(states: Array, weight: Array, epsilon: float = 1e-5) -> Array:
    """Returns x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich 2019, equation 4), over the last axis."""
    return np.asarray(states / np.sqrt((states**2).mean(axis=-1, keepdims=True) + epsilon) * weight)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    # Hendrycks and Gimpel 2016, section 2.
    "gelu": lambda x: x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
}


def sinusoidal_positions(length: int, d_model: int) -> Array:
    """Returns the position encodings, [length, d_model] (Vaswani et al. 2017, section 3.5)."""
    encodings = np.zeros((length, d_model))
    for position in range(length):
        for i in range(d_model // 2):
            angle = position / 10000 ** (2 * i / d_model)
            encodings[position, 2 * i : 2 * i + 2] = math.sin(angle), math.cos(angle)
    return encodings


class Transformer:
    """A Transformer for one sentence pair, from the parameters of a checkpoint."""

    def __init__(self, config: TransformerConfig, parameters: Parameters) -> None:
        self.config = config
        self.parameters = parameters

    def logits(self, source_ids: list[int], target_ids: list[int]) -> Array:
        """Returns the logits [T, V] after each target token."""
        memory = self.encode(source_ids)
        states = self.embed(target_ids, "target")
        future_hidden = np.tri(len(target_ids), dtype=bool)
        all_visible = np.ones((len(target_ids), len(source_ids)), dtype=bool)
        for layer in range(self.config.decoder_layers):
            name = f"decoder.{layer}"
            if self.config.decoder_memory == "ssru":
                states = self.residual(f"{name}.ssru", states, self.recurrent_unit)
            else:
                states = self.residual(
                    f"{name}.self_attention", states, lambda x, name: self.attention(name, x, x, future_hidden)
                )
            states = self.residual(
                f"{name}.cross_attention", states, lambda x, name: self.attention(name, x, memory, all_visible)
            )
            states = self.residual(f"{name}.feed_forward", states, self.feed_forward)
        output = "embedding.weight" if self.config.tie_embeddings else "output.weight"
        logits = self.stack_end("decoder_norm", states) @ self.parameters[output].T
        return np.asarray(logits + self.parameters.get("output_bias", 0.0))

    def encode(self, source_ids: list[int]) -> Array:
        """Returns the memory [S, d_model]."""
        states = self.embed(source_ids, "source")
        all_visible = np.ones((len(source_ids), len(source_ids)), dtype=bool)
        for layer in range(self.config.encoder_layers):
            name = f"encoder.{layer}"
            states = self.residual(
                f"{name}.self_attention", states, lambda x, name: self.attention(name, x, x, all_visible)
            )
            states = self.residual(f"{name}.feed_forward", states, self.feed_forward)
        return self.stack_end("encoder_norm", states)

    def embed(self, ids: list[int], side: str) -> Array:
        """Returns the input of the first layer, [T, d_model]."""
        own = side == "target" and not self.config.tie_embeddings
        weight = self.parameters["target_embedding.weight" if own else "embedding.weight"]
        if self.config.positions == "learned":
            positions = self.parameters[f"{side}_positions.table"][: len(ids)]
        else:
            positions = sinusoidal_positions(len(ids), self.config.d_model)
        scale = math.sqrt(self.config.d_model) if self.config.scale_embeddings else 1.0
        states = np.asarray(weight[ids] * scale + positions)
        return self.norm(f"{side}_embedding_norm", states) if self.config.norm_embeddings else states

    def residual(self, name: str, states: Array, sublayer: Callable[[Array, str], Array]) -> Array:
        norm = f"{name}_residual.norm"
        if self.config.norm_position == "pre":
            return np.asarray(states + sublayer(self.norm(norm, states), name))
        return self.norm(norm, states + sublayer(states, name))

    def stack_end(self, name: str, states: Array) -> Array:
        return self.norm(name, states) if self.config.norm_position == "pre" else states

    def norm(self, name: str, states: Array) -> Array:
        weight, epsilon = self.parameters[f"{name}.weight"], self.config.norm_epsilon
        if self.config.norm == "rms":
            return rms_norm(states, weight, epsilon)
        return layer_norm(states, weight, self.parameters[f"{name}.bias"], epsilon)

    def linear(self, name: str, states: Array) -> Array:
        return np.asarray(states @ self.parameters[f"{name}.weight"].T + self.parameters.get(f"{name}.bias", 0.0))

    def attention(self, name: str, queries: Array, memory: Array, mask: NDArray[np.bool_]) -> Array:
        parts = zip(("query", "key", "value"), (queries, memory, memory), strict=True)
        q, k, v = (self.linear(f"{name}.{part}", states) for part, states in parts)
        heads = [np.split(array, self.config.heads, axis=1) for array in (q, k, v)]
        outputs = [attention(q, k, v, mask) for q, k, v in zip(*heads, strict=True)]
        return self.linear(f"{name}.output", np.concatenate(outputs, axis=1))

    def recurrent_unit(self, states: Array, name: str) -> Array:
        """Returns the output of the simpler simple recurrent unit, [T, d_model] (Kim et al. 2019)."""
        state, outputs = np.zeros(self.config.d_model), []
        for x in states:
            share = 1 / (1 + np.exp(-self.linear(f"{name}.forget", x)))
            state = share * state + (1 - share) * self.linear(f"{name}.input", x)
            outputs.append(np.maximum(state, 0))
        return np.array(outputs)

    def feed_forward(self, states: Array, name: str) -> Array:
        """Returns the feed-forward network's output, [T, d_model]."""
        inner = self.linear(f"{name}.inner", states)
        if self.config.activation == "swiglu":
            activated = ACTIVATIONS["silu"](self.linear(f"{name}.gate", states)) * inner
        else:
            activated = ACTIVATIONS[self.config.activation](inner)
        return self.linear(f"{name}.outer", activated)
