"""Attention follows the paper at every shape and ignores masked positions."""

import numpy as np
import pytest
import torch
from torch import Tensor

from dragoman.model.network.attention import KeysValues, MultiHeadAttention, attend, causal_mask, padding_mask
from tests.support import reference

CPU = torch.device("cpu")


def expected_attention(module: MultiHeadAttention, queries: Tensor, memory: Tensor, mask: Tensor) -> np.ndarray:
    """Returns a module's attention, computed head by head and row by row, [B, T, d_model]."""
    projections = [
        (layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy())
        for layer in (module.query, module.key, module.value, module.output)
    ]
    rows, length, width = queries.shape
    shape = (rows, module.heads, length, memory.shape[1])
    size = width // module.heads
    outputs = []
    for row in range(rows):
        sources = [array[row].double().numpy() for array in (queries, memory, memory)]
        q, k, v = (source @ w.T + b for source, (w, b) in zip(sources, projections, strict=False))
        heads = [
            reference.attention(
                q[:, head * size : (head + 1) * size],
                k[:, head * size : (head + 1) * size],
                v[:, head * size : (head + 1) * size],
                mask.expand(shape)[row, head].numpy(),
            )
            for head in range(module.heads)
        ]
        weight, bias = projections[3]
        outputs.append(np.concatenate(heads, axis=-1) @ weight.T + bias)
    return np.stack(outputs)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("queries", [1, 5])
@pytest.mark.parametrize("memory", [1, 4, 9])
@pytest.mark.parametrize(("d_model", "heads"), [(8, 1), (16, 2), (24, 8)])
def test_attention_equals_the_reference(rows: int, queries: int, memory: int, d_model: int, heads: int) -> None:
    torch.manual_seed(rows * 100 + queries * 10 + memory)
    module = MultiHeadAttention(d_model, heads)
    asking, answering = torch.randn(rows, queries, d_model), torch.randn(rows, memory, d_model)
    mask = torch.rand(rows, 1, queries, memory) < 0.6
    mask[..., 0] = True  # a fully masked position has no defined output
    actual = module(asking, module.project(answering), mask).detach().numpy()
    assert actual.shape == (rows, queries, d_model)
    np.testing.assert_allclose(actual, expected_attention(module, asking, answering, mask), atol=1e-5)


@pytest.mark.parametrize("heads", [1, 2, 4])
@pytest.mark.parametrize("masked", [False, True])
def test_the_weights_are_what_the_values_are_gathered_with(heads: int, masked: bool) -> None:
    torch.manual_seed(2)
    module = MultiHeadAttention(16, heads)
    queries, memory = torch.randn(3, 2, 16), module.project(torch.randn(3, 6, 16))
    mask = torch.tensor([True, True, False, True, False, False])[None, None, None] if masked else None
    weights = module.weights(queries, memory, mask)
    assert weights.shape == (3, heads, 2, 6)
    gathered = (weights @ memory.values).transpose(1, 2).flatten(start_dim=2)
    torch.testing.assert_close(module.output(gathered), module(queries, memory, mask))


def test_no_mask_shows_everything() -> None:
    torch.manual_seed(4)
    module = MultiHeadAttention(16, 2)
    queries, memory = torch.randn(2, 4, 16), module.project(torch.randn(2, 3, 16))
    everything = torch.ones(1, 1, 1, 3, dtype=torch.bool)
    torch.testing.assert_close(module(queries, memory, None), module(queries, memory, everything))


def test_positions_may_be_appended_to_a_memory() -> None:
    torch.manual_seed(5)
    module = MultiHeadAttention(16, 2)
    states = torch.randn(2, 5, 16)
    appended = module.project(states[:, :3]).followed_by(module.project(states[:, 3:]))
    for ours, expected in zip(appended, module.project(states), strict=True):
        torch.testing.assert_close(ours, expected)


def test_mixed_precision_attends_in_float32_on_the_cpu() -> None:
    """The backward pass is slow in bfloat16."""
    memory = KeysValues(torch.randn(2, 2, 3, 8, dtype=torch.bfloat16), torch.randn(2, 2, 3, 8, dtype=torch.bfloat16))
    queries = torch.randn(2, 2, 4, 8, dtype=torch.bfloat16)
    assert attend(queries, memory, None).dtype == torch.bfloat16
    with torch.autocast("cpu", dtype=torch.bfloat16):
        attended = attend(queries, memory, None)
    assert torch.equal(attended, attend(queries.float(), KeysValues(memory.keys.float(), memory.values.float()), None))


def test_a_causal_mask_shows_a_position_itself_and_the_past() -> None:
    assert causal_mask(3, CPU).tolist() == [[[[True, False, False], [True, True, False], [True, True, True]]]]


def test_a_padding_mask_shows_every_real_position_to_all() -> None:
    mask = padding_mask(torch.tensor([[True, True, True], [True, True, False]]))
    assert mask.tolist() == [[[[True, True, True]]], [[[True, True, False]]]]
