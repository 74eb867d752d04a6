"""Reads given translations with a Transformer in NumPy: the reference for the golden sentences of imported models.

A translation is that of greedy search exactly if each of its tokens has the best logit after those before it. All
sentences pass a layer together, so a pass reads each parameter once, even one too large
to be held with others.
Follows Vaswani et al. 2017 (arXiv:1706.03762) in the plainest way, and Kim et al. 2019 for recurrent units.

Shapes: N tokens of all sentences one after the other, S and T of one source and its translation, H heads, D head size,
V vocabulary.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dragoman.model.config import InnerActivation
from dragoman.model.weights import TransformerWeights

Floats = NDArray[np.float32]
# Called with the number of a pair and the cross-attention weights of one layer, [H, T, S]; layers come in order.
Watch = Callable[[int, Floats], None]

# Tokens of one pass, unless a single pair has more: they bound the memory of the states.
MAX_TOKENS = 1024
# Rows of the matrix of logits, which is the largest one, that are multiplied at once.
VOCABULARY_BLOCK = 8192

_ERF = np.frompyfunc(math.erf, 1, 1)


class Pair(NamedTuple):
    """A source and its translation without EOS; `start` tokens precede every translation of the direction."""

    source_ids: tuple[int, ...]
    start: tuple[int, ...]
    target_ids: tuple[int, ...]


def read_translations(model: TransformerWeights, pairs: Sequence[Pair], watch: Watch) -> list[float]:
    """Returns the least lead of the logits of each translation, but not of `start`; negative: another leads."""
    leads: list[float] = []
    with np.errstate(over="ignore"):  # exp of a large negative number in SiLU
        for batch in _batches(pairs):
            leads += _Pass(model, batch, len(leads), watch).leads()
    return leads


def _batches(pairs: Sequence[Pair]) -> Iterator[Sequence[Pair]]:
    """Yields pairs in order, each time as many as a pass may have."""
    batch: list[Pair] = []
    tokens = 0
    for pair in pairs:
        size = max(len(pair.source_ids), len(pair.target_ids))
        if batch and tokens + size > MAX_TOKENS:
            yield batch
            batch, tokens = [], 0
        batch.append(pair)
        tokens += size
    if batch:
        yield batch


def _slices(lengths: Sequence[int]) -> list[slice]:
    """Returns where parts of these lengths are, one after the other."""
    return [slice(*ends) for ends in pairwise([0, *np.cumsum(lengths).tolist()])]


class _Layers:
    """The sub-layers of a model, each over [N, d_model]."""

    def __init__(self, model: TransformerWeights) -> None:
        self.model = model
        self.config = model.config
        self.parameters = model.parameters

    def linear(self, name: str, states: Floats) -> Floats:
        """Computes x W^T + b."""
        product: Floats = states @ self.parameters[f"{name}.weight"].T
        bias = self.parameters.get(f"{name}.bias")
        return product if bias is None else product + bias

    def norm(self, name: str, states: Floats) -> Floats:
        """Normalizes the last axis."""
        gain = self.parameters[f"{name}.weight"]
        is_rms = self.config.norm == "rms"
        centered = states if is_rms else states - states.mean(-1, keepdims=True)
        epsilon = np.float32(self.config.norm_epsilon)
        scaled: Floats = centered / np.sqrt(np.square(centered).mean(-1, keepdims=True) + epsilon) * gain
        return scaled if is_rms else scaled + self.parameters[f"{name}.bias"]

    def residual(self, name: str, states: Floats, sublayer: Callable[[str, Floats], Floats]) -> Floats:
        """Applies the sub-layer of this name with its residual connection."""
        norm = f"{name}_residual.norm"
        if self.config.norm_position == "pre":
            return states + sublayer(name, self.norm(norm, states))
        return self.norm(norm, states + sublayer(name, states))

    def final(self, name: str, states: Floats) -> Floats:
        """Normalizes the result of a pre-norm stack."""
        return self.norm(name, states) if self.config.norm_position == "pre" else states

    def feed_forward(self, name: str, states: Floats) -> Floats:
        """Applies a feed-forward network."""
        inner = self.linear(f"{name}.inner", states)
        activate = _ACTIVATIONS[self.config.inner_activation]
        inner = activate(self.linear(f"{name}.gate", states)) * inner if self.config.gated else activate(inner)
        return self.linear(f"{name}.outer", inner)

    def embed(self, side: str, table: Floats, sentences: Sequence[Sequence[int]]) -> Floats:
        """Returns the input of the first layer for the tokens of all sentences."""
        token_ids = np.concatenate([np.array(sentence) for sentence in sentences])
        positions = np.concatenate([np.arange(len(sentence)) for sentence in sentences])
        vectors = self.parameters[f"{side}_positions.table"][positions]
        embedded: Floats = table[token_ids] * np.float32(self.model.embedding_scale) + vectors
        return self.norm(f"{side}_embedding_norm", embedded) if self.config.norm_embeddings else embedded

    def attend(
        self,
        name: str,
        queries: tuple[Floats, Sequence[slice]],
        keys: tuple[Floats, Sequence[slice]],
        *,
        is_causal: bool = False,
        watch: Watch = lambda *_: None,
    ) -> Floats:
        """Attends from the states of each sentence to those of the same number; both as states and their slices."""
        heads = self.config.heads
        query, key, value = (
            self.linear(f"{name}.{part}", states).reshape(len(states), heads, -1)  # [N, H, D]
            for part, states in (("query", queries[0]), ("key", keys[0]), ("value", keys[0]))
        )
        tables = [self.parameters.get(f"{name}.distances.{part}") for part in ("keys", "bias", "values")]
        mixed = np.empty_like(query)
        for number, (rows, columns) in enumerate(zip(queries[1], keys[1], strict=True)):
            key_vectors, bias, value_vectors = (_by_distance(table, rows, columns) for table in tables)
            scores = query[rows].transpose(1, 0, 2) @ key[columns].transpose(1, 2, 0)  # [H, T, S]
            if key_vectors is not None:
                scores += np.einsum("thd,tsd->hts", query[rows], key_vectors)
            scores /= np.float32(math.sqrt(query.shape[-1]))
            if bias is not None:
                scores += bias.transpose(2, 0, 1)
            if is_causal:
                scores[:, np.triu(np.ones(scores.shape[1:], np.bool_), 1)] = -np.inf
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            watch(number, weights)
            mixed[rows] = (weights @ value[columns].transpose(1, 0, 2)).transpose(1, 0, 2)
            if value_vectors is not None:
                mixed[rows] += np.einsum("hts,tsd->thd", weights, value_vectors)
        return self.linear(f"{name}.output", mixed.reshape(len(mixed), -1))

    def recur(self, name: str, states: Floats, slices: Sequence[slice]) -> Floats:
        """Applies a recurrent unit to each sentence."""
        new, forget = (self.linear(f"{name}.{part}", states) for part in ("input", "forget"))
        share = np.asarray(1 / (1 + np.exp(-forget)), np.float32)
        for rows in slices:
            state = np.zeros_like(new[0])
            for row in range(rows.start, rows.stop):
                new[row] = state = share[row] * state + (1 - share[row]) * new[row]
        return _relu(new)


def _by_distance(table: Floats | None, queries: slice, keys: slice) -> Floats | None:
    """Returns what a table has for the distance of each query and key of a sentence, [T, S, ...]."""
    if table is None:
        return None
    query, key = (np.arange(item.stop - item.start) for item in (queries, keys))
    return np.asarray(table[key - query[:, None] + len(table) // 2])


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


class _Pass:
    def __init__(self, model: TransformerWeights, pairs: Sequence[Pair], first: int, watch: Watch) -> None:
        """Stores the pairs, of which the first has this number."""
        self._model = model
        self._first = first
        self._layers = _Layers(model)
        self._pairs = pairs
        self._watch = watch
        self._sources = _slices([len(pair.source_ids) for pair in pairs])
        self._read = [(model.bos_id, *pair.start, *pair.target_ids) for pair in pairs]
        self._targets = _slices([len(item) for item in self._read])

    def leads(self) -> list[float]:
        """Returns the smallest lead of each pair."""
        states = self._decode(self._encode())
        wanted = np.concatenate([np.array([*item[1:], self._model.eos_id]) for item in self._read])
        leads = self._leads_of_tokens(states, wanted)
        most = self._model.config.max_target_tokens  # no EOS follows a translation that reaches the limit
        return [
            float(leads[rows][len(pair.start) : most].min())
            for pair, rows in zip(self._pairs, self._targets, strict=True)
        ]

    def _encode(self) -> Floats:
        layers = self._layers
        states = layers.embed("source", self._model.source_embedding, [pair.source_ids for pair in self._pairs])

        def attend(name: str, states: Floats) -> Floats:
            return layers.attend(name, (states, self._sources), (states, self._sources))

        for number in range(self._model.config.encoder_layers):
            states = layers.residual(f"encoder.{number}.self_attention", states, attend)
            states = layers.residual(f"encoder.{number}.feed_forward", states, layers.feed_forward)
        return layers.final("encoder_norm", states)

    def _decode(self, memory: Floats) -> Floats:
        layers, reading = self._layers, self._model.config.decoder_memory

        def read(name: str, states: Floats) -> Floats:
            if reading == "ssru":
                return layers.recur(name, states, self._targets)
            return layers.attend(name, (states, self._targets), (states, self._targets), is_causal=True)

        def attend(name: str, states: Floats) -> Floats:
            slices = (states, self._targets), (memory, self._sources)
            return layers.attend(
                name, *slices, watch=lambda number, weights: self._watch(self._first + number, weights)
            )

        states = layers.embed("target", self._model.target_embedding, self._read)
        for number in range(self._model.config.decoder_layers):
            states = layers.residual(f"decoder.{number}.{reading}", states, read)
            states = layers.residual(f"decoder.{number}.cross_attention", states, attend)
            states = layers.residual(f"decoder.{number}.feed_forward", states, layers.feed_forward)
        return layers.final("decoder_norm", states)

    def _leads_of_tokens(self, states: Floats, wanted: NDArray[np.int64]) -> Floats:
        """Returns by how much the logit of each wanted token exceeds the best other one, [N]."""
        output, bias = self._model.output, self._model.parameters.get("output_bias")
        own, others = (np.full(len(wanted), -np.inf, np.float32) for _ in range(2))
        for first in range(0, len(output), VOCABULARY_BLOCK):
            block = slice(first, first + VOCABULARY_BLOCK)
            logits = states @ output[block].T
            if bias is not None:
                logits += bias[block]
            rows = np.flatnonzero((first <= wanted) & (wanted < first + logits.shape[1]))
            columns = wanted[rows] - first
            own[rows] = logits[rows, columns]
            logits[rows, columns] = -np.inf
            others = np.maximum(others, logits.max(axis=1))
        leads: Floats = own - others
        return leads
