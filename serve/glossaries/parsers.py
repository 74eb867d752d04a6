"""The parser of glossary files in the sandbox."""

from collections.abc import Iterator

from dragoman.serve.glossaries.files import read_entries
from dragoman.serve.protect.terms.entry import EntryError
from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.worker import Parser, Refusal

READ = "glossaries.read"


def _read(items: list[Item]) -> Iterator[Item]:
    """Yields source and targets of each entry; refuses with index and problem of an entry."""
    entries_format, source_language, target_language, first_targets, data = items
    try:
        entries = read_entries(data.decode("utf-8", "surrogatepass"), entries_format, source_language, target_language)
    except EntryError as error:
        raise Refusal(error.index, error.problem) from error
    for entry in entries:
        yield entry.source, entry.targets[:1] if first_targets else entry.targets


PARSERS: dict[str, Parser] = {READ: _read}
