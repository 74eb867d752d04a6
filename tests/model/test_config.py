"""The configuration of a run rejects invalid values and survives a round trip through its file."""

from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from dragoman.model import config
from dragoman.model.config import Direction, RunConfig, TokenizerConfig, TrainingConfig, TransformerConfig, recipe_path
from dragoman.model.errors import RunError
from tests.support.cases import cases

CASES = cases(__file__)

CONFIG = RunConfig(directions=(Direction(source="no", target="de"),), model=TransformerConfig(d_model=64, heads=2))


@pytest.mark.parametrize(("d_model", "heads"), [(16, 2), (64, 8), (96, 4), (512, 8)])
def test_a_head_size_that_is_a_multiple_of_eight_is_accepted(d_model: int, heads: int) -> None:
    assert TransformerConfig(d_model=d_model, heads=heads).head_size == d_model // heads


@pytest.mark.parametrize(("d_model", "heads"), [(16, 4), (64, 3), (100, 1), (512, 5)])
def test_another_head_size_is_refused(d_model: int, heads: int) -> None:
    with pytest.raises(ValidationError, match=f"d_model: expected a multiple of 8.*, got {d_model}"):
        TransformerConfig(d_model=d_model, heads=heads)


@pytest.mark.parametrize(("section", "values"), CASES["impossible values and unknown keys are refused"])
def test_impossible_values_and_unknown_keys_are_refused(section: str, values: dict[str, float]) -> None:
    (name,) = values
    with pytest.raises(ValidationError, match=name):
        getattr(config, section).model_validate(values)


def test_the_configuration_comes_back_from_its_file(tmp_path: Path) -> None:
    """Including the Norwegian language, `no`, which YAML parses as False if unquoted."""
    (tmp_path / "config.yaml").write_text(CONFIG.to_yaml())
    assert RunConfig.load(tmp_path / "config.yaml") == CONFIG


def test_a_configuration_without_a_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        RunConfig.load(tmp_path / "config.yaml")


@pytest.mark.parametrize(("content", "problem"), CASES["an invalid configuration is refused"])
def test_an_invalid_configuration_is_refused(content: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(RunError, match=rf"(?i)config\.yaml: expected a run configuration: .*{problem}"):
        RunConfig.load(path)


@pytest.mark.parametrize("path", sorted(config.RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_built_in_recipe_is_a_valid_run(path: Path) -> None:
    assert recipe_path(path.stem) == path
    RunConfig.model_validate({"directions": [{"source": "en", "target": "de"}], **yaml.safe_load(path.read_text())})


def test_an_unknown_recipe_name_is_a_path() -> None:
    assert recipe_path("mine/small.yaml") == Path("mine/small.yaml")


def test_segmentations_of_a_bpe_model_cannot_be_sampled() -> None:
    """It has no probabilities to sample from."""
    directions, training = (Direction(source="en", target="de"),), TrainingConfig(subword_sampling=0.3)
    with pytest.raises(ValidationError, match=r"training\.subword_sampling: expected 0 .*bpe, got 0\.3"):
        RunConfig(directions=directions, tokenizer=TokenizerConfig(kind="bpe"), training=training)
    assert RunConfig(directions=directions, training=training).training.subword_sampling
