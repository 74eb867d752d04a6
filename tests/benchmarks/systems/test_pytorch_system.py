"""A checkpoint has the whole model; a margin is the change that alters the result of a search."""

from pathlib import Path

import pytest
import torch

from benchmarks.systems.pytorch_system import narrowest_margin, read_checkpoint, write_checkpoint
from model.network.transformer import Transformer
from model.search import generate_beam, generate_greedy
from tests.support.toy import OPTIONS, random_model, random_sources

LIMIT = 9


@pytest.mark.parametrize("options", ["default", "learned", "untied", "modern", "output bias"])
def test_the_model_is_read_as_it_was_written(options: str, tmp_path: Path) -> None:
    model = random_model(3, **OPTIONS[options])
    write_checkpoint(tmp_path / "model", model)
    found = read_checkpoint(tmp_path / "model")
    assert not found.training
    assert {parameter.device for parameter in found.parameters()} == {torch.device("cpu")}
    sources = random_sources(model, 1, 5)
    assert generate_greedy(found, sources) == generate_greedy(model, sources)


def translate(model: Transformer, source: list[int], beam_size: int) -> tuple[int, ...]:
    if beam_size == 1:
        return generate_greedy(model, [source])[0].target_ids
    return generate_beam(model, [source], beam_size, 1.0)[0].target_ids


@pytest.mark.parametrize("beam_size", [1, 4])
def test_noise_far_below_the_margin_changes_no_translation(beam_size: int) -> None:
    """A bias of at most e changes a log-probability by 2e at most, a hypothesis of n tokens by 2ne."""
    model = random_model(2, output_bias=True, max_target_tokens=LIMIT)
    bias = model.output_bias
    assert bias is not None
    before = bias.detach().clone()
    random = torch.Generator().manual_seed(5)
    for source in random_sources(model, 6, 15):
        bias.data = before
        margin = narrowest_margin(model, source, beam_size)
        expected = translate(model, source, beam_size)
        noise = torch.rand(len(before), generator=random) * 2 - 1
        bias.data = before + noise * margin / (4 * LIMIT + 4)
        assert translate(model, source, beam_size) == expected


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_tie_has_no_margin(beam_size: int) -> None:
    """With equal embeddings all tokens are equally probable."""
    model = random_model(2, max_target_tokens=LIMIT)
    weight = model.embedding.weight.data
    weight[:] = weight[4]
    assert narrowest_margin(model, [5, 6, 3], beam_size) == pytest.approx(0, abs=1e-6)
