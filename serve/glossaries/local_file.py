"""Reads the glossary files of the command line."""

from pathlib import Path

from dragoman.serve.glossaries.files import FORMATS, read_entries
from dragoman.serve.host.files import FileError
from dragoman.serve.protect.terms.entry import Entry, EntryError


def read_file(file: Path, source_language: str, target_language: str) -> tuple[Entry, ...]:
    """Returns the entries of a file, the end of whose name is its format.

    Raises:
        FileError: if it is invalid.
        OSError: if it cannot be read.
    """
    entries_format = next((known_format for known_format in FORMATS if file.suffix.lower() == f".{known_format}"), None)
    if entries_format is None:
        raise FileError(
            f"{file}: expected a name that ends in {', '.join(f'.{known_format}' for known_format in FORMATS)}"
        )
    try:
        return read_entries(file.read_text("utf-8"), entries_format, source_language, target_language)
    except (EntryError, UnicodeDecodeError) as error:
        raise FileError(f"{file}: {error}") from error
