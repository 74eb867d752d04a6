"""The database of each kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dragoman.serve.host.state import State


@pytest.fixture
def state(tmp_path: Path, state_url: str | None) -> Iterator[State]:
    state = State(tmp_path / "state", state_url)
    yield state
    state.close()
