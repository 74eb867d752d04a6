"""Parallel text: pairs of sentences that translate each other, read from wherever `--data` says.

A data specification is `multi30k:en-de` (any ordered pair of its languages), `files:train.en,train.de` (two files
with a sentence per line) or `tsv:pairs.en-de.tsv` (source, tab, target). Files may be gzip, by their `.gz`. Languages
are read off the file names. This module knows no tokens.
"""

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model import multi30k

SPECIFICATIONS = "multi30k:SOURCE-TARGET, files:SOURCE_FILE,TARGET_FILE or tsv:FILE"


class CorpusError(Exception):
    """The data cannot be read; the message names the specification or the file and what was expected."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Sentence pairs: `sources[i]` and `targets[i]` translate each other; neither is blank."""

    source_language: str
    target_language: str
    sources: list[str]
    targets: list[str]

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def languages(self) -> tuple[str, str]:
        """Source language, target language."""
        return self.source_language, self.target_language


def read_corpus(specification: str, split: str = "train", multi30k_folder: Path | None = None) -> Corpus:
    """Reads parallel text; pairs with a blank side are left out.

    Args:
        specification: one of SPECIFICATIONS.
        split: train, validation or test: which part of a data set that has parts.
        multi30k_folder: where Multi30k is; None: where the environment says.

    Raises:
        CorpusError: if the specification or the files are not as they should be.
    """
    kind, _, rest = specification.partition(":")
    if kind == "multi30k":
        return _read_multi30k(rest, split, multi30k_folder or multi30k.default_folder())
    if kind == "files" and rest.count(",") == 1:
        source, target = (Path(name) for name in rest.split(","))
        return _read_files(source, target)
    if kind == "tsv" and rest:
        return _read_tsv(Path(rest))
    raise CorpusError(f"{specification!r} is not a data specification, expected {SPECIFICATIONS}")


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a UTF-8 text file, plain or gzip, without their line ends.

    Raises:
        CorpusError: if the file cannot be read; the message names it and the line.
    """
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}: cannot be read: {error}") from error
    return list(_decode_lines(path, raw))


def _decode_lines(path: Path, raw: bytes) -> Iterator[str]:
    # Split at line feeds alone: str.splitlines would also split at U+2028 and others, and misalign the two files.
    lines = raw.removesuffix(b"\n").split(b"\n") if raw else []
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode().removesuffix("\r")
        except UnicodeDecodeError as error:
            raise CorpusError(f"{path}: line {number}: not UTF-8: {error.reason} at byte {error.start}") from error


def _read_multi30k(pair: str, split: str, folder: Path) -> Corpus:
    source, _, target = pair.partition("-")
    if source == target or not {source, target} <= set(multi30k.LANGUAGES):
        expected = " and ".join((", ".join(multi30k.LANGUAGES[:-1]), multi30k.LANGUAGES[-1]))
        raise CorpusError(f"multi30k:{pair}: expected an ordered pair of {expected}, as in multi30k:en-de")
    try:
        files = [multi30k.multi30k_file(folder, split, language) for language in (source, target)]
    except multi30k.Multi30kError as error:
        raise CorpusError(str(error)) from error
    return _align(source, target, read_lines(files[0]), read_lines(files[1]), f"multi30k:{pair}")


def _read_files(source: Path, target: Path) -> Corpus:
    languages = [_last_suffix(path) for path in (source, target)]
    return _align(languages[0], languages[1], read_lines(source), read_lines(target), f"files:{source},{target}")


def _read_tsv(path: Path) -> Corpus:
    pair = _last_suffix(path.with_name(path.name.removesuffix(".gz").removesuffix(".tsv")))
    source, _, target = pair.partition("-")
    if not source or not target:
        raise CorpusError(f"{path}: its name does not tell the languages, expected one such as pairs.en-de.tsv")
    rows = [line.split("\t") for line in read_lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2:  # noqa: PLR2004  a pair
            raise CorpusError(f"{path}: line {number}: {len(row)} columns, expected source, tab, target")
    return _align(source, target, [row[0] for row in rows], [row[1] for row in rows], str(path))


def _last_suffix(path: Path) -> str:
    """Returns the language that a file name ends in: `en` of `train.en` and of `train.en.gz`."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.removeprefix(".")
    if not suffix:
        raise CorpusError(f"{path}: its name does not tell the language, expected one such as train.en or train.en.gz")
    return suffix


def _align(source_language: str, target_language: str, sources: list[str], targets: list[str], origin: str) -> Corpus:
    if len(sources) != len(targets):
        raise CorpusError(f"{origin}: {len(sources)} and {len(targets)} lines, expected as many on both sides")
    pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if s.strip() and t.strip()]
    if not pairs:
        raise CorpusError(f"{origin}: holds no sentence pair")
    return Corpus(source_language, target_language, [s for s, _ in pairs], [t for _, t in pairs])
