"""A margin is the change that alters the result of a search: less noise leaves the translation unchanged."""

import pytest
import torch

from benchmarks.near_ties import narrowest_margin
from model.network.transformer import Transformer
from model.search import generate_beam, generate_greedy
from tests.support.toy import random_model, random_sources

LIMIT = 9


@pytest.fixture(scope="module", name="model")
def _model() -> Transformer:
    return random_model(2, output_bias=True, max_target_tokens=LIMIT)


def translate(model: Transformer, source: list[int], beam_size: int) -> tuple[int, ...]:
    if beam_size == 1:
        return generate_greedy(model, [source])[0].target_ids
    return generate_beam(model, [source], beam_size, 1.0)[0].target_ids


@pytest.mark.parametrize("beam_size", [1, 4])
def test_noise_far_below_the_margin_changes_no_translation(model: Transformer, beam_size: int) -> None:
    """A bias of at most e changes a log-probability by 2e at most, a hypothesis of n tokens by 2ne."""
    bias = model.output_bias
    assert bias is not None
    before = bias.detach().clone()
    random = torch.Generator().manual_seed(5)
    for source in random_sources(model, 6, 15):
        margin = narrowest_margin(model, source, beam_size)
        expected = translate(model, source, beam_size)
        noise = torch.rand(len(before), generator=random) * 2 - 1
        bias.data = before + noise * margin / (4 * LIMIT + 4)
        assert translate(model, source, beam_size) == expected
    bias.data = before


def test_the_margin_of_greedy_search_is_the_narrowest_gap(model: Transformer) -> None:
    source = random_sources(model, 7, 1)[0]
    assert narrowest_margin(model, source, 1) == min(generate_greedy(model, [source])[0].gaps)


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_tie_has_no_margin(beam_size: int) -> None:
    """With equal embeddings all tokens are equally probable."""
    model = random_model(2, max_target_tokens=LIMIT)
    weight = model.embedding.weight.data
    weight[:] = weight[4]
    assert narrowest_margin(model, [5, 6, 3], beam_size) == pytest.approx(0, abs=1e-6)
