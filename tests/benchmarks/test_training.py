"""`dragoman bench training` compares training steps with those of `torch.nn.Transformer`."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from benchmarks import training
from benchmarks.harness.errors import BenchmarkError
from benchmarks.training import PeerTransformer, Step, draw_batches, read_config, shape_of
from dragoman.model.config import RunConfig
from dragoman.model.run import build_model

VOCABULARY = 300
RECIPE = """
model: {d_model: 32, d_ff: 64, heads: 2, encoder_layers: 1, decoder_layers: 1, dropout: 0.0, norm_position: pre}
training: {batch_tokens: 48, learning_rate: 0.003}
"""


@pytest.fixture(name="recipe")
def _recipe(tmp_path: Path) -> str:
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    return str(path)


def test_every_vocabulary_is_measured_with_both_systems(recipe: str) -> None:
    plan = training.TrainingPlan(recipe=recipe, vocabularies=(VOCABULARY, 400), sentence_tokens=6, steps=2, rounds=2)
    first, second = plan.measure().tables
    for table in (first, second):
        for system in ("dragoman", training.PEER):
            milliseconds, speeds = (table.figures(row, system) for row in table.rows)
            tokens = [ms * speed / 1000 for ms, speed in zip(milliseconds, speeds, strict=True)]
            assert tokens == pytest.approx([2 * 48.0] * 2)


def test_both_systems_have_the_same_weights_apart_from_biases(recipe: str) -> None:
    config = read_config(recipe)

    def weights(module: torch.nn.Module) -> int:
        return sum(parameter.numel() for parameter in module.parameters() if parameter.dim() > 1)

    assert weights(PeerTransformer(shape_of(config), VOCABULARY)) == weights(build_model(config.model, VOCABULARY))


@pytest.mark.parametrize("make", [training.dragoman_step, training.peer_step])
def test_both_systems_begin_near_full_entropy_and_learn(make: Callable[[RunConfig, int], Step], recipe: str) -> None:
    config = read_config(recipe)
    step = make(config, VOCABULARY)
    (batch,) = draw_batches(config, VOCABULARY, 6, 1)
    losses = [float(step(batch)) for _ in range(30)]
    assert losses[0] == pytest.approx(torch.tensor(float(VOCABULARY)).log().item(), rel=0.25)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("content", ["model: {d_model: 7}", "- a list"])
def test_a_file_that_is_no_recipe_is_rejected(content: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    with pytest.raises(BenchmarkError, match=r"^recipe: "):
        read_config(str(path))
