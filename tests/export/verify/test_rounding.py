"""The rounded PyTorch model rounds exactly what an 8-bit graph rounds."""

from typing import Any

import pytest
import torch
from torch import nn

from dragoman.export.verify.reference import RoundedAttention, rounded, rounded_rows
from dragoman.model.data.batches import pad
from dragoman.model.network.attention import MultiHeadAttention
from tests.support.toy import random_model, random_sources


def test_a_row_becomes_whole_multiples_of_a_127th_of_its_largest_magnitude() -> None:
    values = torch.tensor([[0.5, -127.0, 3.6], [0.0, 0.0, 0.0], [1.27, 0.014, -0.016]])
    expected = torch.tensor([[0.0, -127.0, 4.0], [0.0, 0.0, 0.0], [1.27, 0.01, -0.02]])
    assert torch.allclose(rounded_rows(values), expected)


@torch.inference_mode()
def test_the_heads_of_a_decoder_are_rounded_for_caches_in_8_bits() -> None:
    """Queries, keys, values and weights of every position and head, and nothing of the encoder."""
    model = random_model(3)
    sources, targets = pad(random_sources(model, 1, 5)), torch.tensor([[1, 5, 6, 7]] * 5)
    plain, copy = rounded(model), rounded(model)
    for layer, exact in zip(plain.decoder_layers, model.decoder_layers, strict=True):
        layer.self_attention, layer.cross_attention = exact.self_attention, exact.cross_attention
    assert not torch.equal(copy(sources, targets), plain(sources, targets))
    assert torch.equal(copy.encode(sources).states, plain.encode(sources).states)


@torch.inference_mode()
def test_attention_in_8_bits_rounds_every_factor_of_a_product() -> None:
    """Of one query and head, computed here number by number."""
    torch.manual_seed(4)
    attention = MultiHeadAttention(8, heads=1)
    attention.output = nn.Identity()  # type: ignore[assignment]  # the result of the head itself
    queries, memory = torch.randn(1, 1, 8), attention.project(torch.randn(1, 5, 8))
    query = rounded_rows(attention.query(queries))[0, 0]
    keys, values = (rounded_rows(item)[0, 0] for item in memory)
    weights = (keys @ query / 8**0.5).softmax(dim=0)
    scales = values.abs().amax(dim=1)
    levels = (weights * scales / (weights * scales).max() * 255).round()
    expected = levels * (weights * scales).max() / 255 / scales @ values
    assert torch.allclose(RoundedAttention(attention)(queries, memory, None)[0, 0], expected, atol=1e-6)


@pytest.mark.parametrize("options", [{}, {"tie_embeddings": False}, {"norm_position": "pre", "activation": "swiglu"}])
@torch.inference_mode()
def test_rounding_changes_logits_but_not_the_model(options: dict[str, Any]) -> None:
    model = random_model(3, **options)
    sources = pad(random_sources(model, 1, 5))
    targets = torch.tensor([[1, 5, 6, 7]] * 5)
    before = model(sources, targets)
    assert 0 < (rounded(model)(sources, targets) - before).abs().max() < before.std()
    assert torch.equal(model(sources, targets), before)


def test_all_matrices_are_rounded_once() -> None:
    for name, parameter in rounded(random_model(3, tie_embeddings=False)).named_parameters():
        if parameter.dim() > 1:
            levels = parameter / parameter.abs().amax(dim=1, keepdim=True) * 127
            assert torch.allclose(levels, levels.round(), atol=1e-3), name
