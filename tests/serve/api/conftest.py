"""A service for all tests of a file; tests of counters and of the shutdown use `gated`, which is new for each test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import LiveService, run_service


@pytest.fixture(scope="module")
def live(bundle_path: Path) -> Iterator[LiveService]:
    """A ready service in front of two engines with fake models."""
    with run_service(bundle_path) as service:
        yield service
