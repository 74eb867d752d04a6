"""The file that a command writes when its work is done."""

from pathlib import Path


def check_output(command: str, option: str, path: Path | None) -> None:
    """Raises SystemExit if a file cannot be written. A command calls it before its work, which may take an hour."""
    if path is not None and (path.is_dir() or not path.parent.is_dir()):
        raise SystemExit(f"dragoman {command}: {option}: {path}: expected a file in an existing folder")


def write_output(path: Path, text: str) -> None:
    """Writes the file of a command; an OSError names it, which that of a full disk does not by itself."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        error.filename = str(path)
        raise
