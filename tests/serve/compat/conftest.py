"""A service for all tests of a file, and the translation by its own interface."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fakes import FakeModel
from tests.support.interfaces import live, open_deepl
from tests.support.live import LiveService, run_service

__all__ = ["live", "open_deepl"]
TEXT = "alpha beta."


@pytest.fixture(scope="module")
def served(bundle_path: Path) -> Iterator[LiveService]:
    with run_service(bundle_path) as live:
        yield live


@pytest.fixture(scope="module")
def lettered(letters_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A service of a model for two letters that aligns and stores."""
    state = tmp_path_factory.mktemp("state")
    with run_service(letters_bundle, [FakeModel(8)], alignments=True, state_dir=state) as live:
        yield live


@pytest.fixture(scope="module")
def expected(served: LiveService) -> str:
    """The translation of `TEXT` by the own interface."""
    return str(served.post({"text": TEXT}).json()["translations"][0]["text"])
