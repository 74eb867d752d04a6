"""The file that a command writes when its work is done."""

from pathlib import Path


def check_output(command: str, option: str, path: Path) -> None:
    """Raises SystemExit if a file cannot be written. A command calls it before its work, which may take an hour."""
    if path.is_dir() or not path.parent.is_dir():
        raise SystemExit(f"dragoman {command}: {option}: {path}: expected a file in an existing folder")
