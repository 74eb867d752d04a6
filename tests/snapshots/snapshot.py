"""Compares text with a stored file, a snapshot, and rewrites the file if `UPDATE_SNAPSHOTS=1` is set."""

import os
from difflib import unified_diff
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
UPDATE = "UPDATE_SNAPSHOTS"
HOW_TO_UPDATE = f"To accept the new text, run: {UPDATE}=1 pytest tests/snapshots"


def updating() -> bool:
    """Returns whether this run rewrites the snapshots."""
    return os.environ.get(UPDATE) == "1"


def check(name: str, text: str) -> None:
    """Fails with a unified diff if a text differs from its snapshot; `name` is its path in the folder `data`."""
    path = DATA / name
    text = text.rstrip("\n") + "\n"
    if updating():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    stored = path.read_text(encoding="utf-8") if path.exists() else ""
    if text != stored:
        lines = unified_diff(stored.splitlines(), text.splitlines(), f"stored {name}", f"current {name}", lineterm="")
        pytest.fail("\n".join((*lines, "", HOW_TO_UPDATE)), pytrace=False)


def check_names(folder: str, names: set[str]) -> None:
    """Fails if a folder of snapshots holds a file without one of the names, or deletes it if snapshots are updated."""
    unused = {path.name for path in (DATA / folder).iterdir()} - names
    if updating():
        for name in unused:
            (DATA / folder / name).unlink()
    elif unused:
        pytest.fail(f"{folder}: unused snapshots: {', '.join(sorted(unused))}\n\n{HOW_TO_UPDATE}", pytrace=False)
