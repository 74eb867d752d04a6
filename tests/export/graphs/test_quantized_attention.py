"""Attention with int8 caches computes what a plain reference computes from the dequantized values."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from export.graphs.quantized_attention import CacheScales, QuantizedAttention
from model.network.attention import KeysValues
from tests.support.one_layer import session_of_module

Array = NDArray[Any]
SCALES = CacheScales(self_key=0.021, self_value=0.017, cross_key=0.025, cross_value=0.013)
OTHERS = CacheScales(1.0, 1.0, 1.0, 1.0)
ROWS, CAPACITY = 7, 24
SHAPES = pytest.mark.parametrize(("heads", "head_size"), [(1, 8), (4, 32), (8, 64), (3, 24)])


class Target(nn.Module):
    """Self-attention of the second decoder layer."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.attention = QuantizedAttention(heads, [OTHERS, SCALES]).in_decoder_layer(1)

    def forward(self, new: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return self.attention.attend_in_target(new, key, value, lengths)


class Source(nn.Module):
    """Cross-attention of the second decoder layer."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.attention = QuantizedAttention(heads, [OTHERS, SCALES]).in_decoder_layer(1)

    def forward(self, new: Tensor, key: Tensor, value: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        output, caches = self.attention.attend_to_source(new, key, value, lengths)
        return output, *caches


class Kept(nn.Module):
    """The cached source and its dequantized keys."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = QuantizedAttention(1, [OTHERS, SCALES]).in_decoder_layer(1)

    def forward(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        kept = self.attention.keep(KeysValues(key, value))
        return kept.keys, kept.values, self.attention.kept_keys(kept.keys)


def run_in_place(session: Any, new: Array, key: Array, value: Array, lengths: Array) -> Array:
    """Runs attention like the engine, with outputs bound to the caches; returns the attended states."""
    rows, heads, _, head_size = key.shape
    output = np.zeros((rows, 1, heads * head_size), np.float32)
    binding = session.io_binding()
    for node, array in zip(session.get_inputs(), (new, key, value, lengths), strict=True):
        binding.bind_input(node.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    for node, array in zip(session.get_outputs(), (output, key, value), strict=True):
        binding.bind_output(node.name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
    session.run_with_iobinding(binding)
    return output


def run_alone(session: Any, new: Array, key: Array, value: Array, lengths: Array) -> Array:
    """Runs each row alone, without changing the caches."""
    rows = (slice(row, row + 1) for row in range(len(new)))
    return np.concatenate(
        [run_in_place(session, new[row], key[row].copy(), value[row].copy(), lengths[row]) for row in rows]
    )


def attend(query: Array, keys: Array, values: Array) -> Array:
    """Softmax(q K^T / sqrt(D)) V of one head (Vaswani et al. 2017, equation 1): [D], [T, D], [T, D] -> [D]."""
    scores = keys @ query / np.sqrt(len(query))
    weights = np.exp(scores - scores.max())
    result: Array = weights @ values / weights.sum()
    return result


def rounded(values: Array, scale: float) -> Array:
    return np.clip(np.rint(values / np.float32(scale)), -128, 127).astype(np.int8)


def random_caches(random: np.random.Generator, heads: int, head_size: int) -> tuple[Array, Array]:
    shape = (ROWS, heads, CAPACITY, head_size)
    return random.integers(-128, 128, shape, np.int8), random.integers(-128, 128, shape, np.int8)


def example(heads: int, head_size: int, parts: int) -> tuple[Tensor, ...]:
    cache = torch.zeros(2, heads, CAPACITY, head_size, dtype=torch.int8)
    return torch.ones(2, 1, parts * heads * head_size), cache, cache.clone(), torch.ones(2, dtype=torch.int32)


@SHAPES
def test_a_step_rounds_the_new_position_and_attends_to_rounded_values(heads: int, head_size: int) -> None:
    random = np.random.default_rng(1)
    session = session_of_module(Target(heads), *example(heads, head_size, 3))
    key, value = random_caches(random, heads, head_size)
    new = random.standard_normal((ROWS, 1, 3 * heads * head_size)).astype(np.float32)
    new[3] *= 100  # beyond the 8-bit range
    lengths = random.integers(0, CAPACITY, ROWS).astype(np.int32)
    expected_key, expected_value = key.copy(), value.copy()
    queries, keys, values = new.reshape(ROWS, 3, heads, head_size).transpose(1, 0, 2, 3)
    for row, length in enumerate(lengths):
        expected_key[row, :, length] = rounded(keys[row], SCALES.self_key)
        expected_value[row, :, length] = rounded(values[row], SCALES.self_value)

    alone = run_alone(session, new, key, value, lengths)
    together = run_in_place(session, new, key, value, lengths)
    assert alone.tobytes() == together.tobytes()
    output = together.reshape(ROWS, heads, head_size)
    assert (key == expected_key).all()
    assert (value == expected_value).all()
    for row, head in np.ndindex(ROWS, heads):
        there = slice(lengths[row] + 1)
        known = key[row, head, there] * SCALES.self_key, value[row, head, there] * SCALES.self_value
        assert output[row, head] == pytest.approx(attend(queries[row, head], *known), rel=1e-4, abs=1e-4)


@SHAPES
def test_the_source_is_read_up_to_its_length_and_not_changed(heads: int, head_size: int) -> None:
    random = np.random.default_rng(2)
    session = session_of_module(Source(heads), *example(heads, head_size, 1))
    key, value = random_caches(random, heads, head_size)
    before = key.copy(), value.copy()
    new = random.standard_normal((ROWS, 1, heads * head_size)).astype(np.float32)
    lengths = random.integers(1, CAPACITY + 1, ROWS).astype(np.int32)

    alone = run_alone(session, new, key, value, lengths)
    together = run_in_place(session, new, key, value, lengths)
    assert alone.tobytes() == together.tobytes()
    output = together.reshape(ROWS, heads, head_size)
    assert (key == before[0]).all()
    assert (value == before[1]).all()
    for row, head in np.ndindex(ROWS, heads):
        there = slice(lengths[row])
        known = key[row, head, there] * SCALES.cross_key, value[row, head, there] * SCALES.cross_value
        query = new[row].reshape(heads, head_size)[head]
        assert output[row, head] == pytest.approx(attend(query, *known), rel=1e-4, abs=1e-4)


def test_a_cached_source_is_quantized_by_its_scales() -> None:
    random = np.random.default_rng(4)
    key, value = (random.uniform(-4, 4, (ROWS, 1, CAPACITY, 8)).astype(np.float32) for _ in range(2))
    session = session_of_module(Kept(), torch.zeros(2, 1, CAPACITY, 8), torch.ones(2, 1, CAPACITY, 8))
    names = [node.name for node in session.get_inputs()]
    kept_key, kept_value, floats = session.run(None, dict(zip(names, (key, value), strict=True)))
    assert (kept_key == rounded(key, SCALES.cross_key)).all()
    assert (kept_value == rounded(value, SCALES.cross_value)).all()
    assert floats == pytest.approx(kept_key * np.float32(SCALES.cross_key))
