"""A checkpoint has the whole model."""

from pathlib import Path

import pytest
import torch

from benchmarks.systems.pytorch_system import read_checkpoint, write_checkpoint
from dragoman.model.search import generate_greedy
from tests.support.toy import OPTIONS, random_model, random_sources


@pytest.mark.parametrize("options", ["default", "learned", "untied", "modern", "output bias"])
def test_the_model_is_read_as_it_was_written(options: str, tmp_path: Path) -> None:
    model = random_model(3, **OPTIONS[options])
    write_checkpoint(tmp_path / "model", model)
    found = read_checkpoint(tmp_path / "model")
    assert not found.training
    assert {parameter.device for parameter in found.parameters()} == {torch.device("cpu")}
    sources = random_sources(model, 1, 5)
    assert generate_greedy(found, sources) == generate_greedy(model, sources)
