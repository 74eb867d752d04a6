"""Shortlists of Marian's own models: lex.*.bin, or the text lex.s2t from which Marian makes one.

Marian's ids are those of the bundle. A line of the text is `target source probability`, with pieces as tokens.
"""

import gzip
import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from dragoman.export.imports import common
from dragoman.export.imports.marian_folder import shortlist_paths
from dragoman.export.imports.marian_vocabulary import Vocabularies
from dragoman.serve.bundle.files import open_file
from dragoman.serve.bundle.shortlist import Shortlist, ShortlistError, check_checksum, read_shortlist

# Marian's defaults for a text.
FREQUENT, BEST = 100, 100
# Longer lines are no pieces of a vocabulary.
MAX_LINE_BYTES = 10_000
# A word that Marian's tools link to words without a translation.
EMPTY_WORD = "NULL"


def read_marian_shortlist(folder: Path, vocabularies: Vocabularies, tokens: int) -> Shortlist | None:
    """Returns the shortlist of a model with `tokens` tokens; None: there is none.

    A source token of a vocabulary that both sides share is a candidate itself, as in Marian.

    Raises ImportedModelError if the file is damaged, or does not fit the vocabularies.
    """
    paths = shortlist_paths(folder)
    if not paths:
        return None
    source, target = vocabularies.source, vocabularies.target
    if paths[0].suffix == ".bin":
        try:
            found = read_shortlist(paths[0], len(source), len(target))
            check_checksum(paths[0])
        except ShortlistError as error:
            raise common.ImportedModelError(str(error)) from error
    else:
        found = _read_text(paths[0], source, target)
    shared = source == target
    entries: list[Iterable[int]] = [
        chain(found.entry(token), [token] if shared else []) for token in range(len(source))
    ]
    return Shortlist.of(found.frequent, [*entries, *[()] * (tokens - len(source))])


def _read_text(path: Path, source: Sequence[str], target: Sequence[str]) -> Shortlist:
    """Returns the most probable target tokens of each source token; lines with other words are left out."""
    source_ids, target_ids = ({piece: number for number, piece in enumerate(side)} for side in (source, target))
    rows: list[list[tuple[float, int]]] = [[] for _ in source]
    for number, line in enumerate(_lines(path), 1):
        try:
            target_piece, source_piece, probability = line.decode().split()
            pair = float(probability), target_ids.get(target_piece)
        except ValueError as error:
            expected = "expected `target source probability`"
            raise common.ImportedModelError(f"{path}: line {number}: {expected}") from error
        source_id = source_ids.get(source_piece)
        if source_id is not None and pair[1] is not None and EMPTY_WORD not in (target_piece, source_piece):
            row = rows[source_id]
            (heapq.heappush if len(row) < BEST else heapq.heappushpop)(row, (pair[0], pair[1]))
    if not any(rows):
        raise common.ImportedModelError(f"{path}: expected pieces of the target and of the source vocabulary")
    return Shortlist.of(min(FREQUENT, len(target)), [[token for _, token in row] for row in rows])


def _lines(path: Path) -> Iterator[bytes]:
    with open_file(path) as file, gzip.open(file) if path.suffix == ".gz" else file as content:
        while line := content.readline(MAX_LINE_BYTES):
            yield line
