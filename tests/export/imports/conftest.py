"""A small model in CTranslate2's format."""

from pathlib import Path
from shutil import copytree

import pytest

from benchmarks.systems.ctranslate2_system import spec_of
from dragoman.model.tokenizer.tokenizer import Tokenizer
from tests.support.ctranslate2_models import make_model, write_model


@pytest.fixture(scope="session")
def small_model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = spec_of(make_model(tokenizer), tokenizer.source_pieces)
    return write_model(tmp_path_factory.mktemp("ctranslate2") / "small", spec, tokenizer=tokenizer)


@pytest.fixture
def model_folder(small_model: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may damage."""
    return copytree(small_model, tmp_path / "small")
