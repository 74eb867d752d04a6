"""Attention follows the paper at every shape and ignores masked positions."""

import pytest
import torch

from dragoman.model.network.attention import KeysValues, MultiHeadAttention, attend

CPU = torch.device("cpu")


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
