"""Aligns the texts of a source: those of two languages with the same document and key."""

import struct
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dragoman.model.data.sources.archives import read_members
from dragoman.model.data.sources.readers.fluent import read_ftl
from dragoman.model.data.sources.readers.help_pages import read_help
from dragoman.model.data.sources.readers.manual_pages import read_man
from dragoman.model.data.sources.readers.messages import CONTEXT_END, Messages, english_of
from dragoman.model.data.sources.readers.plain_formats import (
    read_dictionary,
    read_json,
    read_mo,
    read_pak,
    read_po,
    read_properties,
)
from dragoman.model.data.sources.readers.scripts import read_diagnostics, read_localize_calls, read_message_list
from dragoman.model.data.sources.source_list import Source
from dragoman.model.errors import CorpusError, reason_of

READERS: dict[str, Callable[[bytes], Messages]] = {
    "mo": read_mo,
    "po": read_po,
    "ftl": read_ftl,
    "properties": read_properties,
    "json": read_json,
    "pak": read_pak,
    "list": read_message_list,
    "localize": read_localize_calls,
    "diagnostics": read_diagnostics,
    "help": read_help,
    "man": read_man,
    "dictionary": read_dictionary,
}


class Pair(NamedTuple):
    """An English text, its translation, and the document that has both."""

    language: str
    english: str
    other: str
    document: str


def read_pairs(source: Source, archives: Iterable[Path]) -> Iterator[Pair]:
    """Yields the pairs of a source from its packages' folders or archives; raises CorpusError if one is unreadable."""
    documents = _read_documents(source, archives)
    english = documents.pop("en", None)
    for language, texts in documents.items():
        for name, messages in texts.items():
            originals = {key: english_of(key) for key in messages} if english is None else english.get(name, {})
            for key, other in messages.items():
                if key in originals:
                    yield Pair(language, originals[key], other, f"{name}{_part(key)}")


def _read_documents(source: Source, archives: Iterable[Path]) -> dict[str, dict[str, Messages]]:
    documents: dict[str, dict[str, Messages]] = {language: {} for language in source.expressions}
    for archive in archives:
        # Some packages have the language only in the name of the archive.
        finder = partial(source.find, archive.name)
        for path, content in read_members(archive, finder):
            for language, document, reader in finder(path):
                messages = read_file(reader, content, f"{archive}: {path}")
                documents[language].setdefault(document, {}).update(messages)
    return documents


def read_file(reader: str, content: bytes, origin: str) -> Messages:
    """Returns the texts of a file; raises CorpusError, which names the origin, if its reader expects another form."""
    try:
        messages = READERS[reader](content)
    except (CorpusError, ValueError, OSError, RecursionError, struct.error) as error:
        # polib reports a syntax error as an OSError.
        raise CorpusError(f"{origin}: cannot be read: {reason_of(error)}") from error
    return {key: _with_joined_surrogates(text) for key, text in messages.items()}


def _with_joined_surrogates(text: str) -> str:
    """Joins the two halves of characters that a file spells by two escapes; a half without the other is replaced."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _part(key: str) -> str:
    """Returns the part of a document that a key with a context belongs to, such as a dialog."""
    context, mark, _ = key.rpartition(CONTEXT_END)
    return f"#{context.partition('|')[0]}" if mark and context else ""
