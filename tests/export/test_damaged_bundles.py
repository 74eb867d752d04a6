"""Commands that read a bundle of someone else end with one line if it is damaged, never with a traceback."""

from pathlib import Path
from shutil import copytree

from tests.support.hostile import attack


def test_mutations_are_read_or_refused(toy_bundle: Path, tmp_path: Path, *, thorough: bool) -> None:
    attack("command", 600 if thorough else 25, copytree(toy_bundle, tmp_path / "bundle"))
