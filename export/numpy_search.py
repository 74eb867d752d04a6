"""Greedy search with a Transformer in NumPy: the reference for golden sentences of models without PyTorch.

Follows Vaswani et al. 2017 (arXiv:1706.03762) in the plainest way, and Kim et al. 2019 for recurrent units. Sources are
encoded one by one and decoded together.

Shapes: R rows, S source length, T target length so far, H heads, D head size, V vocabulary.
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from model.config import InnerActivation
from model.weights import TransformerWeights

Floats = NDArray[np.float32]

_ERF = np.frompyfunc(math.erf, 1, 1)


class Translation(NamedTuple):
    """A greedy translation.

    Attributes:
        target_ids: without EOS.
        gap: smallest lead of the best logit at any step.
        log_probability: mean over all steps.
    """

    target_ids: tuple[int, ...]
    gap: float
    log_probability: float


class _Layers:
    """The sub-layers of a model, each over [..., d_model]."""

    def __init__(self, model: TransformerWeights) -> None:
        self.model = model
        self.config = model.config
        self.heads = model.config.heads

    def linear(self, name: str, states: Floats) -> Floats:
        """Computes x W^T + b."""
        # One product for all rows reads the weights once.
        weight = self.model.parameters[f"{name}.weight"]
        product: Floats = (states.reshape(-1, states.shape[-1]) @ weight.T).reshape(*states.shape[:-1], -1)
        bias = self.model.parameters.get(f"{name}.bias")
        return product if bias is None else product + bias

    def norm(self, name: str, states: Floats) -> Floats:
        """Normalizes the last axis."""
        gain = self.model.parameters[f"{name}.weight"]
        is_rms = self.config.norm == "rms"
        centered = states if is_rms else states - states.mean(-1, keepdims=True)
        epsilon = np.float32(self.config.norm_epsilon)
        scaled: Floats = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + epsilon) * gain
        return scaled if is_rms else scaled + self.model.parameters[f"{name}.bias"]

    def residual(self, name: str, states: Floats, sublayer: Callable[[Floats], Floats]) -> Floats:
        """Applies a sub-layer with its residual connection."""
        if self.config.norm_position == "pre":
            return states + sublayer(self.norm(f"{name}_residual.norm", states))
        return self.norm(f"{name}_residual.norm", states + sublayer(states))

    def final(self, name: str, states: Floats) -> Floats:
        """Normalizes the result of a pre-norm stack."""
        return self.norm(name, states) if self.config.norm_position == "pre" else states

    def feed_forward(self, name: str, states: Floats) -> Floats:
        """Applies the feed-forward network of a layer."""
        inner = self.linear(f"{name}.inner", states)
        activate = _ACTIVATIONS[self.config.inner_activation]
        inner = activate(self.linear(f"{name}.gate", states)) * inner if self.config.gated else activate(inner)
        return self.linear(f"{name}.outer", inner)

    def split(self, states: Floats) -> Floats:
        """Splits the width into heads: [R, T, d_model] -> [R, H, T, D]."""
        rows, length, width = states.shape
        return states.reshape(rows, length, self.heads, width // self.heads).transpose(0, 2, 1, 3)

    def weights(self, name: str, states: Floats, keys: Floats, hidden: NDArray[np.bool_]) -> Floats:
        """Returns the weights of [R, T, d_model] for keys [R, H, S, D], 0 where `hidden`: [R, H, T, S].

        In self-attention the last query and the last key have the same position.
        """
        queries = self.split(self.linear(f"{name}.query", states))
        scores = queries @ keys.transpose(0, 1, 3, 2)
        vectors, bias = (self.distances(f"{name}.{part}", *scores.shape[2:]) for part in ("keys", "bias"))
        if vectors is not None:
            scores += np.einsum("rhtd,tsd->rhts", queries, vectors)
        scores /= np.float32(math.sqrt(queries.shape[-1]))
        if bias is not None:
            scores += bias.transpose(2, 0, 1)
        scores = np.where(hidden, np.float32(-np.inf), scores)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        normalized: Floats = weights / weights.sum(-1, keepdims=True)
        return normalized

    def attend(self, name: str, states: Floats, keys: Floats, values: Floats, hidden: NDArray[np.bool_]) -> Floats:
        """Attends from [R, T, d_model] to keys and values [R, H, S, D], except where `hidden`, bool [R, 1, T, S]."""
        return self.mix(name, self.weights(name, states, keys, hidden), values)

    def mix(self, name: str, weights: Floats, values: Floats) -> Floats:
        """Sums values [R, H, S, D] by weights [R, H, T, S] and joins the heads: [R, T, d_model]."""
        heads = (weights @ values).transpose(0, 2, 1, 3)  # [R, T, H, D]
        vectors = self.distances(f"{name}.values", *weights.shape[2:])
        if vectors is not None:
            heads = heads + np.einsum("rhts,tsd->rthd", weights, vectors)
        return self.linear(f"{name}.output", heads.reshape(*heads.shape[:2], -1))

    def distances(self, table: str, queries: int, keys: int) -> Floats | None:
        """Returns what a table of self-attention has for each distance, [T, S, ...]; None if there is no such table."""
        attention, _, part = table.rpartition(".")
        rows = self.model.parameters.get(f"{attention}.distances.{part}")
        if rows is None:
            return None
        query = np.arange(keys - queries, keys)[:, None]
        return np.asarray(rows[np.arange(keys) - query + len(rows) // 2])

    def embed(self, side: str, table: Floats, token_ids: NDArray[np.int64], first: int) -> Floats:
        """Returns the input of the first layer, for positions from `first` on: [R, T] -> [R, T, d_model]."""
        positions = self.model.parameters[f"{side}_positions.table"][first : first + token_ids.shape[1]]
        embedded: Floats = table[token_ids] * np.float32(self.model.embedding_scale) + positions
        return self.norm(f"{side}_embedding_norm", embedded) if self.config.norm_embeddings else embedded


def _relu(states: Floats) -> Floats:
    result: Floats = np.maximum(states, np.float32(0))
    return result


def _silu(states: Floats) -> Floats:
    return np.asarray(states / (1 + np.exp(-states)), np.float32)


def _gelu(states: Floats) -> Floats:
    distribution: Floats = (0.5 * (1 + _ERF(states / math.sqrt(2)))).astype(np.float32)
    return states * distribution


def _gelu_tanh(states: Floats) -> Floats:
    inner = np.float32(math.sqrt(2 / math.pi)) * (states + np.float32(0.044715) * states**3)
    return np.asarray(np.float32(0.5) * states * (1 + np.tanh(inner)), np.float32)


_ACTIVATIONS: dict[InnerActivation, Callable[[Floats], Floats]] = {
    "relu": _relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
}


def translate_greedy(
    model: TransformerWeights, sources: Sequence[Sequence[int]], start: Sequence[int] = ()
) -> list[Translation]:
    """Translates complete sources; a translation ends with EOS or after `max_target_tokens` tokens.

    `start` precedes every translation and is no part of it; the limit counts it.
    """
    with np.errstate(over="ignore"):  # exp of a large negative number in SiLU
        return _Search(model, sources).run(start)


def attention_maps(model: TransformerWeights, source: Sequence[int], target_ids: Sequence[int]) -> Floats:
    """Returns the cross-attention of every step of a translation, EOS included: float [layers, H, T + 1, S]."""
    search = _Search(model, [source], keeps_maps=True)
    for position, token_id in enumerate((model.bos_id, *target_ids)):
        search.advance(np.array([token_id]), position)
    steps = [
        np.concatenate(search.maps[step :: model.config.decoder_layers]) for step in range(model.config.decoder_layers)
    ]
    return np.stack([layer[:, :, 0].transpose(1, 0, 2) for layer in steps])


class _Search:
    """The state of a greedy search: caches of the rows that have not ended, and cross-attention weights if kept."""

    def __init__(
        self, model: TransformerWeights, sources: Sequence[Sequence[int]], *, keeps_maps: bool = False
    ) -> None:
        self._model = model
        self._layers = _Layers(model)
        memories = [self._encode(source) for source in sources]
        longest = max(map(len, sources))
        padded = np.stack([np.pad(memory, ((0, longest - len(memory)), (0, 0))) for memory in memories])
        lengths = np.array([len(source) for source in sources])
        self._hidden = (np.arange(longest) >= lengths[:, None])[:, None, None]
        self._source = [self._keys_values(f"decoder.{number}.cross_attention", padded) for number in self._numbers()]
        self._target: list[tuple[Floats, Floats]] = []
        self._states: list[Floats] = []
        self._rows = np.arange(len(sources))
        self._keeps_maps = keeps_maps
        self.maps: list[Floats] = []
        self._found: list[tuple[list[int], list[float], list[float]]] = [([], [], []) for _ in sources]

    def _numbers(self) -> range:
        return range(self._model.config.decoder_layers)

    def _keys_values(self, name: str, states: Floats) -> tuple[Floats, Floats]:
        layers = self._layers
        return layers.split(layers.linear(f"{name}.key", states)), layers.split(layers.linear(f"{name}.value", states))

    def _encode(self, source: Sequence[int]) -> Floats:
        """Returns the memory of one source, [S, d_model]."""
        layers = self._layers
        states = layers.embed("source", self._model.source_embedding, np.array([source]), 0)
        shown = np.zeros((1, 1, 1, 1), np.bool_)
        for number in range(self._model.config.encoder_layers):
            name = f"encoder.{number}.self_attention"
            states = layers.residual(
                name,
                states,
                lambda x, name=name: layers.attend(name, x, *self._keys_values(name, x), shown),  # type: ignore[misc]
            )
            states = self._feed_forward(f"encoder.{number}", states)
        memory: Floats = layers.final("encoder_norm", states)[0]
        return memory

    def _feed_forward(self, layer: str, states: Floats) -> Floats:
        name = f"{layer}.feed_forward"
        return self._layers.residual(name, states, lambda x: self._layers.feed_forward(name, x))

    def run(self, start: Sequence[int]) -> list[Translation]:
        """Searches until every row has ended."""
        token_ids: NDArray[Any] = np.full(len(self._rows), self._model.bos_id)
        for position in range(self._model.config.max_target_tokens):
            states = self.advance(token_ids, position)
            if position < len(start):
                token_ids = np.full(len(self._rows), start[position])
                continue
            logits = self._logits(states)
            two = np.partition(logits, -2, axis=1)[:, -2:]
            token_ids, gaps = logits.argmax(axis=1), two[:, 1] - two[:, 0]
            scores = -np.log(np.exp(logits - two[:, 1:]).sum(axis=1))
            for row, token_id, gap, score in zip(self._rows, token_ids, gaps, scores, strict=True):
                ids, leads, log_probabilities = self._found[row]
                leads.append(float(gap))
                log_probabilities.append(float(score))
                if token_id != self._model.eos_id:
                    ids.append(int(token_id))
            kept = token_ids != self._model.eos_id
            if not kept.any():
                break
            if not kept.all():
                token_ids = token_ids[kept]
                self._keep(kept)
        return [Translation(tuple(ids), min(leads), fmean(scores)) for ids, leads, scores in self._found]

    def _keep(self, kept: NDArray[np.bool_]) -> None:
        self._rows, self._hidden = self._rows[kept], self._hidden[kept]
        self._source, self._target = (
            [(keys[kept], values[kept]) for keys, values in caches] for caches in (self._source, self._target)
        )
        self._states = [state[kept] for state in self._states]

    def advance(self, token_ids: NDArray[np.int64], position: int) -> Floats:
        """Reads one token per row; returns the states of the last layer, [R, d_model]."""
        layers, model = self._layers, self._model
        states = layers.embed("target", model.target_embedding, token_ids[:, None], position)
        for number in self._numbers():
            name = f"decoder.{number}"
            memory = self._model.config.decoder_memory
            read = self._recur(number) if memory == "ssru" else self._attend_to_target(number)
            states = layers.residual(f"{name}.{memory}", states, read)
            states = layers.residual(f"{name}.cross_attention", states, self._attend_to_source(number))
            states = self._feed_forward(name, states)
        last: Floats = layers.final("decoder_norm", states)[:, 0]
        return last

    def _logits(self, states: Floats) -> Floats:
        """Returns the logits of the next token of each row, [R, V]."""
        logits: Floats = states @ self._model.output.T
        bias = self._model.parameters.get("output_bias")
        return logits if bias is None else logits + bias

    def _attend_to_target(self, number: int) -> Callable[[Floats], Floats]:
        name = f"decoder.{number}.self_attention"

        def attend(states: Floats) -> Floats:
            new = self._keys_values(name, states)
            if number == len(self._target):
                self._target.append(new)
            else:
                keys, values = self._target[number]
                self._target[number] = np.concatenate((keys, new[0]), 2), np.concatenate((values, new[1]), 2)
            return self._layers.attend(name, states, *self._target[number], np.zeros((1, 1, 1, 1), np.bool_))

        return attend

    def _recur(self, number: int) -> Callable[[Floats], Floats]:
        name = f"decoder.{number}.ssru"

        def recur(states: Floats) -> Floats:
            new, forget = (self._layers.linear(f"{name}.{part}", states) for part in ("input", "forget"))
            share = np.asarray(1 / (1 + np.exp(-forget)), np.float32)
            if number == len(self._states):
                self._states.append(np.zeros_like(new))
            self._states[number] = share * self._states[number] + (1 - share) * new
            return _relu(self._states[number])

        return recur

    def _attend_to_source(self, number: int) -> Callable[[Floats], Floats]:
        name = f"decoder.{number}.cross_attention"

        def attend(states: Floats) -> Floats:
            keys, values = self._source[number]
            weights = self._layers.weights(name, states, keys, self._hidden)
            if self._keeps_maps:
                self.maps.append(weights)
            return self._layers.mix(name, weights, values)

        return attend
