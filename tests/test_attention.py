"""Attention is what the paper says, at every shape, and sees nothing that its mask hides."""

import numpy as np
import pytest
import torch
from torch import Tensor

from model.attention import MultiHeadAttention, causal_mask, padding_mask
from tests import reference

CPU = torch.device("cpu")


def expected_attention(module: MultiHeadAttention, queries: Tensor, memory: Tensor, mask: Tensor) -> np.ndarray:
    """Returns the attention of a module, head by head and row by row, [B, T, d_model]."""
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
    mask[..., 0] = True  # a position that may see nothing has no answer
    actual = module(asking, answering, mask).detach().numpy()
    assert actual.shape == (rows, queries, d_model)
    np.testing.assert_allclose(actual, expected_attention(module, asking, answering, mask), atol=1e-5)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_what_the_mask_hides_changes_nothing(heads: int) -> None:
    torch.manual_seed(1)
    module = MultiHeadAttention(16, heads)
    queries, memory = torch.randn(1, 2, 16), torch.randn(1, 6, 16)
    mask = torch.tensor([True, True, False, True, False, False])[None, None, None]
    changed = memory.clone()
    changed[:, ~mask[0, 0, 0]] = 1e3
    torch.testing.assert_close(module(queries, changed, mask), module(queries, memory, mask))
    changed[:, 0] += 1
    assert not torch.allclose(module(queries, changed, mask), module(queries, memory, mask))


def test_a_causal_mask_shows_a_position_itself_and_the_past() -> None:
    expected = [[True, False, False], [True, True, False], [True, True, True]]
    assert causal_mask(3, CPU).tolist() == [[expected]]


def test_a_padding_mask_shows_every_real_position_to_all() -> None:
    mask = padding_mask(torch.tensor([[5, 6, 3], [4, 3, 0]]), pad_id=0)
    assert mask.tolist() == [[[[True, True, True]]], [[[True, True, False]]]]


def test_heads_are_cut_from_neighbouring_columns() -> None:
    states = torch.arange(12.0).view(1, 2, 6)
    heads = MultiHeadAttention(6, 3).split_heads(states)
    assert heads.tolist() == [[[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [10, 11]]]]
