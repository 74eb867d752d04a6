"""Commands that read a bundle of someone else end with one line if it is damaged, never with a traceback."""

from pathlib import Path
from shutil import copytree

import pytest

from tests.support.hostile import attack


@pytest.mark.parametrize(("kind", "times"), [("inspect", 15), ("verify", 20), ("evaluate", 10), ("export", 10)])
def test_mutations_are_read_or_refused(toy_bundle: Path, tmp_path: Path, kind: str, times: int, thorough: bool) -> None:
    attack(kind, times * (10 if thorough else 1), copytree(toy_bundle, tmp_path / "bundle"))
