"""A service for all tests of a file, and the translation by its own interface."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.interfaces import live, open_deepl
from tests.support.live import LiveService, run_service

__all__ = ["live", "open_deepl"]
TEXT = "alpha beta."


@pytest.fixture(scope="module")
def served(bundle_path: Path) -> Iterator[LiveService]:
    with run_service(bundle_path) as live:
        yield live


@pytest.fixture(scope="module")
def expected(served: LiveService) -> str:
    """The translation of `TEXT` by the own interface."""
    text: str = served.post({"text": TEXT}).json()["translations"][0]["text"]
    return text
