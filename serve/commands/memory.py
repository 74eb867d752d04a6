"""The commands `dragoman memory` on shared memories, and `dragoman corrections` on those of all clients."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from pydantic import Field
from pydantic_settings import CliPositionalArg

from dragoman.model.errors import UsageError, UserError
from dragoman.serve.commands.ahead import make_ahead
from dragoman.serve.commands.listing import Columns, ListingCommand, count
from dragoman.serve.commands.state import StateCommand
from dragoman.serve.documents.pairs import PART_BYTES, PairsError, PairsFormat, format_of, read_pairs, write_pairs
from dragoman.serve.errors import InvalidRequestError
from dragoman.serve.host.state import State
from dragoman.serve.keys.key import time_text
from dragoman.serve.memory.corrections import MAX_CORRECTIONS, CorrectionStore
from dragoman.serve.memory.entry import OPERATOR, Entry, Pair
from dragoman.serve.memory.store import Batch, MemoryStore, Wanted, prepare_batches


class _PairsCommand(StateCommand):
    file: CliPositionalArg[Path] = Field(description="File of pairs: tmx, tsv, po, xliff or xlf")
    source_language: CliPositionalArg[str] = Field(description="ISO 639-1 code of the texts")
    target_language: CliPositionalArg[str] = Field(description="ISO 639-1 code of their translations")

    @property
    def pair(self) -> Pair:
        return Pair(self.source_language, self.target_language)

    def write(self, read: Callable[[State], Iterable[Entry]]) -> None:
        """Writes pairs of the database to the file."""
        kind = format_of(self.file)
        with self.open() as state, self.file.open("w", encoding="utf-8") as file:
            file.writelines(write_pairs(read(state), kind, self.pair))


class _NamedCommand(StateCommand):
    name: CliPositionalArg[str] = Field(description="Name of the memory")


class ImportMemoryCommand(_PairsCommand, _NamedCommand):
    """Add the pairs of a file to a shared memory, which is made if it is missing. Running servers have them at once."""

    def cli_cmd(self) -> None:
        """Prints how many pairs are new."""
        kind = format_of(self.file)
        try:
            with self.open() as state:
                batches = make_ahead(partial(_read, self.file, kind, self.pair))
                print(f"added: {MemoryStore(state).add_batches(OPERATOR, self.name, batches, shared=True):,}")
        except PairsError as error:
            raise UserError(f"{self.file}: {error}") from error


def _read(path: Path, kind: PairsFormat, pair: Pair) -> Iterator[Batch]:
    """Yields the pairs of a file; raises PairsError."""
    with path.open("rb") as file:
        try:
            entries = read_pairs(iter(lambda: file.read(PART_BYTES), b""), kind, pair)
            yield from prepare_batches(pair, entries, OPERATOR.author)
        except InvalidRequestError as error:
            raise PairsError(str(error)) from error


class ExportMemoryCommand(_PairsCommand, _NamedCommand):
    """Write the entries of a shared memory to a file."""

    def cli_cmd(self) -> None:
        """Writes the file."""
        self.write(lambda state: MemoryStore(state).texts(OPERATOR, self.name, self.pair))


class ListMemoriesCommand(StateCommand, ListingCommand):
    """List the shared memories."""

    def cli_cmd(self) -> None:
        """Prints a row per memory."""
        with self.open() as state:
            rows = [item._asdict() for item in MemoryStore(state).list_all(OPERATOR)]
        columns: Columns = {"name": str, "entry_count": count, "version": str, "changed_seconds": _show_time}
        self.print_rows(rows, columns, "no memory")


class DeleteMemoryCommand(StateCommand):
    """Delete a shared memory, or its entries of an origin, an author, or before a time."""

    name: CliPositionalArg[str] = Field(description="Name of the memory")
    origin: str | None = Field(None, description="Only entries of this origin: import or correction")
    author: str | None = Field(None, description="Only entries of this author: id of an API key, or an address")
    before_seconds: float | None = Field(None, description="Only entries from before this Unix time")

    def cli_cmd(self) -> None:
        """Prints how many entries there were."""
        wanted = Wanted(origin=self.origin, author=self.author, before_seconds=self.before_seconds)
        with self.open() as state:
            deleted = MemoryStore(state).delete(OPERATOR, self.name, None if wanted == Wanted() else wanted)
        print(f"deleted: {deleted:,}")


class IndexMemoriesCommand(StateCommand):
    """Build the index of similar texts of all memories again. Entries of early versions have none."""

    def cli_cmd(self) -> None:
        """Prints how many entries there are."""
        with self.open() as state:
            print(f"indexed: {MemoryStore(state).rebuild_index():,}")


class ListCorrectionsCommand(StateCommand, ListingCommand):
    """List the corrections that wait for approval, the oldest first."""

    terms: bool = Field(False, description="List glossary entries that at least three corrections propose instead")

    def cli_cmd(self) -> None:
        """Prints a row per correction or term."""
        texts: Columns = dict.fromkeys((*Pair._fields, "source", "target"), _one_line)
        with self.open() as state:
            store = CorrectionStore(state)
            if self.terms:
                self.print_rows(store.terms(OPERATOR), {**texts, "corrections": count}, "no term")
                return
            rows = [row._asdict() for row in store.list_all(OPERATOR, limit=MAX_CORRECTIONS)]
        self.print_rows(rows, {"id": str, "memory": str, **texts, "created_seconds": _show_time}, "no correction")


class ExportCorrectionsCommand(_PairsCommand):
    """Write the approved corrections of all clients to a file."""

    def cli_cmd(self) -> None:
        """Writes the file."""
        self.write(lambda state: CorrectionStore(state).approved(self.pair))


class ApproveCorrectionsCommand(StateCommand):
    """Make corrections entries of their memories. Running servers have them at once."""

    ids: CliPositionalArg[list[int]] = Field([], description="Ids of corrections")
    all: bool = Field(False, description="All that wait")
    delete: bool = Field(False, description="Delete them instead")

    def cli_cmd(self) -> None:
        """Prints how many there were."""
        if bool(self.ids) == self.all:
            raise UsageError("expected either ids or --all")
        with self.open() as state:
            store = CorrectionStore(state)
            waiting = [row.id for row in store.list_all(OPERATOR, limit=MAX_CORRECTIONS)]
            end = store.delete if self.delete else store.approve
            print(f"{'deleted' if self.delete else 'approved'}: {end(OPERATOR, waiting if self.all else self.ids):,}")


def _show_time(seconds: float) -> str:
    return time_text(int(seconds)) or ""


def _one_line(text: str) -> str:
    return " ".join(text.split())
