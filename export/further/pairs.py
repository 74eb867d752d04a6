"""Training data that is no text file: pairs of a TMX file, or of a shared translation memory of the server."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from dragoman.model.errors import CorpusError
from dragoman.serve.memory.entry import OPERATOR, Entry, Pair


@contextmanager
def as_tables(specifications: Sequence[str], state_dir: Path | None) -> Iterator[tuple[str, ...]]:
    """Yields the specifications, with tables in a temporary folder in place of TMX files and memories.

    `state_dir` is that of the server. Raises CorpusError for a file that cannot be read, UserError for a memory.
    """
    with TemporaryDirectory(prefix="dragoman-pairs-") as folder:
        found = []
        for number, specification in enumerate(specifications):
            kind, _, rest = specification.partition(":")
            if kind not in ("tmx", "memory"):
                found.append(specification)
                continue
            name, _, languages = rest.removesuffix(".tmx").rpartition("." if kind == "tmx" else ":")
            if not (name and re.fullmatch("[a-z]{2,3}-[a-z]{2,3}", languages)):
                raise CorpusError(f"{specification}: expected tmx:NAME.en-de.tmx or memory:NAME:en-de")
            table, pair = Path(folder) / f"{number}.{languages}.tsv", Pair(*languages.split("-"))
            entries = _of_file(Path(rest), pair) if kind == "tmx" else _of_memory(name, pair, state_dir)
            rows = ["\t".join(" ".join(text.split()) for text in entry[:2]) for entry in entries]
            if not any(map(str.strip, rows)):
                raise CorpusError(f"{specification}: expected at least one sentence pair")
            table.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8", newline="\n")
            found.append(f"tsv:{table}")
        yield tuple(found)


def _of_file(path: Path, pair: Pair) -> Iterator[Entry]:
    from dragoman.serve.documents.pairs import PART_BYTES, PairsError, read_pairs  # noqa: PLC0415 - needs SQLAlchemy

    try:
        with path.open("rb") as file:
            yield from read_pairs(iter(lambda: file.read(PART_BYTES), b""), "tmx", pair)
    except PairsError as error:
        raise CorpusError(f"{path}: {error}") from error
    except OSError as error:
        raise CorpusError(f"{path}: cannot be read: {error.strerror}") from error


def _of_memory(name: str, pair: Pair, state_dir: Path | None) -> Iterator[Entry]:
    from dragoman.serve.commands.state import StateCommand  # noqa: PLC0415 - needs SQLAlchemy
    from dragoman.serve.memory.store import MemoryStore  # noqa: PLC0415

    command = StateCommand() if state_dir is None else StateCommand.model_validate({"state_dir": state_dir})
    with command.open() as state:
        yield from MemoryStore(state).texts(OPERATOR, name, pair)
