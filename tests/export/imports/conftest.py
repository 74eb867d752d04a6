"""Small models in the formats of other toolkits, and texts for them."""

from pathlib import Path
from shutil import copytree

import pytest

from benchmarks.systems.ctranslate2_system import spec_of
from dragoman.model.tokenizer.tokenizer import Tokenizer
from tests.support.ctranslate2_models import make_model, write_model
from tests.support.marian import make_texts, marian_vocabulary, random_marian, write_marian
from tests.support.marian_student import Student


@pytest.fixture(scope="session")
def texts(pytestconfig: pytest.Config) -> tuple[str, ...]:
    return make_texts(5, 200 if pytestconfig.getoption("thorough") else 40)


@pytest.fixture(scope="session")
def student() -> Student:
    return Student().eval()


@pytest.fixture(scope="session")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of Hugging Face in one file."""
    vocabulary = marian_vocabulary()
    return write_marian(tmp_path_factory.mktemp("marian") / "m", random_marian(len(vocabulary)), vocabulary)


@pytest.fixture(scope="session")
def small_model(tokenizer: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = spec_of(make_model(tokenizer), tokenizer.source_pieces)
    return write_model(tmp_path_factory.mktemp("ctranslate2") / "small", spec, tokenizer=tokenizer)


@pytest.fixture
def model_folder(small_model: Path, tmp_path: Path) -> Path:
    """A copy of the model that a test may damage."""
    return copytree(small_model, tmp_path / "small")
