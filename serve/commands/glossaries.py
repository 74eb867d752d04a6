"""The commands `dragoman glossaries`."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import Field
from pydantic_settings import CliPositionalArg

from dragoman.serve.commands.listing import Columns, ListingCommand
from dragoman.serve.commands.state import StateCommand
from dragoman.serve.glossaries.files import read_file, write_entries
from dragoman.serve.glossaries.store import SHARED, Dictionary, GlossaryStore
from dragoman.serve.keys.key import time_text


class CreateGlossaryCommand(StateCommand):
    """Store a glossary from a file of terms, and print its id. Running servers have it at once."""

    name: CliPositionalArg[str] = Field(description="Name of the glossary")
    file: CliPositionalArg[Path] = Field(description="File of terms and their translations: tsv, csv or tbx")
    source_language: CliPositionalArg[str] = Field(description="ISO 639-1 code of the terms")
    target_language: CliPositionalArg[str] = Field(description="ISO 639-1 code of their translations")

    def cli_cmd(self) -> None:
        """Stores the glossary."""
        pair = self.source_language, self.target_language
        with self.open() as state:
            dictionary = Dictionary(*pair, read_file(self.file, *pair))
            print(GlossaryStore(state).of(SHARED).create(self.name, [dictionary]).id)


class ListGlossariesCommand(StateCommand, ListingCommand):
    """List the stored glossaries, the oldest first."""

    def cli_cmd(self) -> None:
        """Prints a row per glossary."""
        with self.open() as state:
            rows = map(asdict, GlossaryStore(state).of(SHARED).list_all())
        columns: Columns = {"id": str, "name": str, "dictionaries": lambda found: ", ".join(map(_summary, found))}
        self.print_rows(rows, columns, "no glossary")


class ShowGlossaryCommand(StateCommand, ListingCommand):
    """Show a glossary; with both languages, the entries of its dictionary, as TSV or JSON."""

    id: CliPositionalArg[str] = Field(description="Id of the glossary")
    source_language: str = Field("", description="ISO 639-1 code of the terms")
    target_language: str = Field("", description="ISO 639-1 code of their translations")

    def cli_cmd(self) -> None:
        """Prints a line per field, or per entry."""
        pair = self.source_language, self.target_language
        with self.open() as state:
            store = GlossaryStore(state).of(SHARED)
            glossary, entries = store.get(self.id), store.entries(self.id, *pair) if any(pair) else None
        if self.as_json:
            self.print_json(asdict(glossary) if entries is None else list(map(asdict, entries)))
            return
        if entries is not None:
            print(write_entries(entries, "tsv", *pair), end="")
            return
        print(f"id: {glossary.id}\nname: {glossary.name}")
        created, changed = int(glossary.created_seconds), int(glossary.changed_seconds)
        print(f"created: {time_text(created)}\nchanged: {time_text(changed)}")
        for dictionary in glossary.dictionaries:
            print(_summary(asdict(dictionary)))


class DeleteGlossaryCommand(StateCommand):
    """Delete a glossary with all its entries."""

    id: CliPositionalArg[str] = Field(description="Id of the glossary")

    def cli_cmd(self) -> None:
        """Deletes the glossary."""
        with self.open() as state:
            GlossaryStore(state).of(SHARED).delete(self.id)


def _summary(dictionary: Mapping[str, Any]) -> str:
    return "{source_language}-{target_language}: {entry_count}".format_map(dictionary)
