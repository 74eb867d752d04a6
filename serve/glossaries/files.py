"""Entries as files: TSV and CSV with a term and the forms of its translation per row, and TBX.

A term whose translation is the term itself is not translated. The files have no mark for letter case.
"""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from serve.files import FileError
from serve.glossaries.entry import MOST_ENTRIES, Entry, EntryError, check_entries
from serve.glossaries.tbx import read_tbx, write_tbx

EntriesFormat = Literal["tsv", "csv", "tbx"]
FORMATS: tuple[EntriesFormat, ...] = get_args(EntriesFormat)
MEDIA_TYPES: dict[EntriesFormat, str] = {
    "tsv": "text/tab-separated-values",
    "csv": "text/csv",
    "tbx": "application/x-tbx+xml",
}


def read_entries(
    text: str, entries_format: EntriesFormat, source_language: str, target_language: str
) -> tuple[Entry, ...]:
    """Returns the entries of a file; blank lines have none.

    Args:
        text: of the file.
        entries_format: of the file.
        source_language: ISO 639-1 code; TBX may have other languages, too.
        target_language: the same.

    Raises:
        EntryError: naming the first invalid entry.
    """
    text = text.removeprefix("\ufeff")
    if entries_format == "tbx":
        return check_entries(read_tbx(text, source_language, target_language))
    rows = _tsv_rows(text) if entries_format == "tsv" else _csv_rows(text)
    return check_entries(_entries(rows))


def read_file(file: Path, source_language: str, target_language: str) -> tuple[Entry, ...]:
    """Returns the entries of a file, the end of whose name is its format.

    Raises:
        FileError: if it is invalid.
        OSError: if it cannot be read.
    """
    entries_format = next((each for each in FORMATS if file.suffix.lower() == f".{each}"), None)
    if entries_format is None:
        raise FileError(f"{file}: expected a name that ends in {', '.join(f'.{each}' for each in FORMATS)}")
    try:
        return read_entries(file.read_text("utf-8"), entries_format, source_language, target_language)
    except (EntryError, UnicodeDecodeError) as error:
        raise FileError(f"{file}: {error}") from error


def write_entries(
    entries: Iterable[Entry], entries_format: EntriesFormat, source_language: str, target_language: str
) -> str:
    """Returns a file of entries, which `read_entries` reads."""
    if entries_format == "tbx":
        return write_tbx(entries, source_language, target_language)
    rows = ((entry.source, *entry.targets) for entry in entries)
    if entries_format == "tsv":
        return "".join("\t".join(row) + "\n" for row in rows)
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    return file.getvalue()


def _tsv_rows(text: str) -> Iterator[Sequence[str]]:
    return (line.split("\t") for line in text.replace("\r\n", "\n").split("\n"))


def _csv_rows(text: str) -> Iterator[Sequence[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""), strict=True)
    except csv.Error as error:
        raise EntryError(0, f"malformed CSV: {error}") from error


def _entries(rows: Iterable[Sequence[str]]) -> Iterator[Entry]:
    filled = (row for row in rows if any(map(str.strip, row)))
    for index, row in enumerate(filled):
        if index == MOST_ENTRIES:
            raise EntryError(index, f"expected at most {MOST_ENTRIES} entries")
        source, *targets = row
        if not any(map(str.strip, targets)):
            raise EntryError(index, "a term without a translation, expected a separator and a translation")
        yield Entry.of(source, targets)
