"""Entries as files: TSV and CSV with a term and the forms of its translation per row, and TBX.

A term whose translation is the term itself is not translated. The files have no mark for letter case.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, get_args

from dragoman.serve.glossaries.tbx import read_tbx, write_tbx
from dragoman.serve.host.files import FileError
from dragoman.serve.protect.terms.entry import MAX_ENTRIES, Entry, EntryError, check_entries

EntriesFormat = Literal["tsv", "csv", "tbx"]
FORMATS: tuple[EntriesFormat, ...] = get_args(EntriesFormat)
MEDIA_TYPES: dict[EntriesFormat, str] = {
    "tsv": "text/tab-separated-values",
    "csv": "text/csv",
    "tbx": "application/x-tbx+xml",
}
# Blank ones count; further columns are often empty.
MAX_LINES = 1_000_000
MAX_COLUMNS = 10_000
_TSV_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_CSV_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+")


def read_entries(
    text: str, entries_format: EntriesFormat, source_language: str, target_language: str
) -> tuple[Entry, ...]:
    """Returns the entries of a file; blank lines have none.

    Args:
        source_language, target_language: ISO 639-1 codes; TBX may have other languages, too.

    Raises:
        EntryError: naming the first invalid entry.
    """
    text = text.removeprefix("\ufeff")
    if entries_format == "tbx":
        return check_entries(read_tbx(text, source_language, target_language))
    rows = _tsv_rows(text) if entries_format == "tsv" else _csv_rows(text)
    return check_entries(_entries(rows))


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
    return (line.removesuffix("\n").removesuffix("\r").split("\t") for line in _lines(text, _TSV_LINE, "\t"))


def _csv_rows(text: str) -> Iterator[Sequence[str]]:
    try:
        yield from csv.reader(_lines(text, _CSV_LINE, ","), strict=True)
    except csv.Error as error:
        raise EntryError(0, f"malformed CSV: {error}") from error


def _lines(text: str, line: re.Pattern[str], separator: str) -> Iterator[str]:
    """Yields the lines of a file with their ends; raises EntryError if there are too many lines or columns."""
    for number, found in enumerate(line.finditer(text)):
        if number == MAX_LINES:
            raise EntryError(MAX_ENTRIES, f"expected at most {MAX_LINES} lines")
        columns = text.count(separator, *found.span()) + 1
        if columns > MAX_COLUMNS:
            raise EntryError(number, f"{columns} columns, expected at most {MAX_COLUMNS}")
        yield found[0]


def _entries(rows: Iterable[Sequence[str]]) -> Iterator[Entry]:
    filled = (row for row in rows if any(map(str.strip, row)))
    for index, row in enumerate(filled):
        if index == MAX_ENTRIES:
            raise EntryError(index, f"expected at most {MAX_ENTRIES} entries")
        source, *targets = row
        if not any(map(str.strip, targets)):
            raise EntryError(index, "a term without a translation, expected a separator and a translation")
        yield Entry.of(source, targets)


def read_file(file: Path, source_language: str, target_language: str) -> tuple[Entry, ...]:
    """Returns the entries of a file, whose suffix is the format; raises FileError if it is invalid, or OSError."""
    entries_format = next((known_format for known_format in FORMATS if file.suffix.lower() == f".{known_format}"), None)
    if entries_format is None:
        raise FileError(
            f"{file}: expected a name that ends in {', '.join(f'.{known_format}' for known_format in FORMATS)}"
        )
    try:
        return read_entries(file.read_text("utf-8"), entries_format, source_language, target_language)
    except (EntryError, UnicodeDecodeError) as error:
        raise FileError(f"{file}: {error}") from error
