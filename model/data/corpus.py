"""Parallel text: sentence pairs read from a data specification. Works on text, not on tokens.

A data specification is `multi30k:en-de` (any ordered pair of its languages; `multi30k:all` is every one),
`files:train.en,train.de` (two files with a sentence per line, and an optional third with word links, see
model/alignment/links.py), `tsv:pairs.en-de.tsv` (source, tab, target) or `hf:NAME:en-de` (see
model/data/hugging_face.py). The names of files contain the languages; `.gz` means gzip.
"""

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, permutations
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator
from pydantic_settings import NoDecode

from dragoman.model.alignment.links import Link, ReferenceLinks, check_links, parse_links
from dragoman.model.config import Direction
from dragoman.model.data import hugging_face, multi30k
from dragoman.model.errors import CorpusError, reason_of

SPECIFICATIONS = (
    "multi30k:SOURCE-TARGET, multi30k:all, files:SOURCE_FILE,TARGET_FILE[,LINKS_FILE], tsv:FILE or "
    "hf:NAME:SOURCE-TARGET"
)
_COMMA_BEFORE_SPECIFICATION = re.compile(",(?=(?:multi30k|files|tsv|hf|tmx|memory):)")


def split_specifications(value: object) -> object:
    """Splits a string of data at commas, but not `files:train.en,train.de`; returns any other value unchanged."""
    return _COMMA_BEFORE_SPECIFICATION.split(value) if isinstance(value, str) else value


# The type of a command's option: repeated, or once with commas, also in the environment.
Specifications = Annotated[tuple[str, ...], NoDecode, BeforeValidator(split_specifications)]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Sentence pairs of one direction; `sources[i]` and `targets[i]` are a pair, neither blank nor with a line feed.

    Languages are ISO 639 codes; `blank_pairs` counts the pairs dropped at reading because a side was blank. `links` has
    the links between the words of each pair, or is empty.
    """

    source_language: str
    target_language: str
    sources: list[str]
    targets: list[str]
    blank_pairs: int = 0
    links: list[frozenset[Link]] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def languages(self) -> tuple[str, str]:
        """Source language, target language."""
        return self.source_language, self.target_language

    @property
    def direction(self) -> Direction:
        """Source and target language, as in a run's configuration."""
        return Direction(source=self.source_language, target=self.target_language)

    def reversed(self) -> "Corpus":
        """Returns the same pairs from target to source, without links."""
        return Corpus(self.target_language, self.source_language, self.targets, self.sources, self.blank_pairs)

    def select(self, indices: Iterable[int]) -> "Corpus":
        """Returns the corpus of the pairs at these indices, in the order given."""
        chosen = list(indices)
        return Corpus(
            *self.languages,
            [self.sources[i] for i in chosen],
            [self.targets[i] for i in chosen],
            self.blank_pairs,
            [self.links[i] for i in chosen] if self.links else [],
        )


def read_corpora(
    specifications: Sequence[str], split: str = "train", multi30k_folder: Path | None = None
) -> list[Corpus]:
    """Returns one corpus per direction, in order of first occurrence; joins the pairs of several specifications.

    Drops pairs with a blank side. Data without parts ignores `split`: train, validation or test. Raises
    CorpusError if a specification is invalid or its data cannot be read.
    """
    parts: dict[tuple[str, str], list[Corpus]] = {}
    for specification in specifications:
        for corpus in _read(specification, split, multi30k_folder):
            parts.setdefault(corpus.languages, []).append(corpus)
    return [_join(corpora) for corpora in parts.values()]


def read_corpus(specification: str, split: str = "train", multi30k_folder: Path | None = None) -> Corpus:
    """Reads parallel text like `read_corpora`, of one direction; raises CorpusError if it is invalid or has several."""
    corpora = _read(specification, split, multi30k_folder)
    if len(corpora) > 1:
        raise CorpusError(f"{specification}: expected one direction, as in multi30k:en-de, got {len(corpora)}")
    return corpora[0]


def has_split(specification: str, split: str) -> bool:
    """Returns whether the data has this part (files and tables do not); raises CorpusError if a data set is missing."""
    kind, _, rest = specification.partition(":")
    if kind == "hf":
        return hugging_face.has_split(rest, split)
    return kind == "multi30k" and split in multi30k.SPLITS


def balanced_lines(corpora: Iterable[Corpus], limit: int) -> list[str]:
    """Returns distinct lines for tokenizer training, with an equal share of the limit per language.

    Languages with fewer lines leave their rest to the others. The lines of a language are spread evenly over its
    corpora.
    """
    languages: dict[str, dict[str, None]] = {}
    for corpus in corpora:
        for language, lines in zip(corpus.languages, (corpus.sources, corpus.targets), strict=True):
            languages.setdefault(language, {}).update(dict.fromkeys(lines))
    chosen: list[str] = []
    smallest_first = sorted(languages.values(), key=len)
    for done, distinct in enumerate(smallest_first):
        lines = list(distinct)
        share = min(len(lines), (limit - len(chosen)) // (len(smallest_first) - done))
        chosen += [lines[i * len(lines) // share] for i in range(share)]
    return chosen


def read_lines(path: Path) -> list[str]:
    """Returns the lines of a UTF-8 file, plain or gzip; raises CorpusError, which names the line that is no text."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise CorpusError(f"{path}: cannot be read: {reason_of(error)}") from error
    return list(_decode_lines(str(path), raw))


def _decode_lines(origin: str, raw: bytes) -> Iterator[str]:
    # Lines end only at line feeds: str.splitlines also splits at U+2028 and others, which would misalign the two files.
    for number, line in enumerate(raw.removesuffix(b"\n").split(b"\n") if raw else [], start=1):
        if b"\0" in line:
            raise CorpusError(f"{origin}: line {number}: expected UTF-8 text, got NUL at byte {line.index(0)}")
        try:
            yield line.decode().removesuffix("\r")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{origin}: line {number}: expected UTF-8: {error.reason} at byte {error.start}"
            ) from error


def read_links(path: Path, corpus: Corpus) -> list[ReferenceLinks]:
    """Reads the links, one line per pair without a blank side; raises CorpusError if a line does not fit its pair."""
    lines = read_lines(path)
    if len(lines) != len(corpus):
        raise CorpusError(
            f"{path}: {len(lines)} lines, expected {len(corpus)}: one per sentence pair without a blank side"
        )
    references = []
    for number, (line, source, target) in enumerate(zip(lines, corpus.sources, corpus.targets, strict=True), start=1):
        try:
            links = parse_links(line)
            check_links(links.possible, source, target)
        except ValueError as error:
            raise CorpusError(f"{path}: line {number}: {error}") from error
        references.append(links)
    return references


def _read(specification: str, split: str, multi30k_folder: Path | None) -> list[Corpus]:
    """Returns the corpora of one specification, one per direction."""
    kind, _, rest = specification.partition(":")
    if kind == "multi30k":
        return _read_multi30k(rest, split, multi30k_folder or multi30k.default_folder())
    if kind == "files" and rest.count(",") in (1, 2):
        return [_read_files(*map(Path, rest.split(",")))]
    if kind == "tsv" and rest:
        return [_read_tsv(Path(rest))]
    if kind == "hf" and rest:
        return [_align(*hugging_face.read_hugging_face(rest, split), specification)]
    raise CorpusError(f"{specification!r} is not a data specification: expected {SPECIFICATIONS}")


def _read_multi30k(pair: str, split: str, folder: Path) -> list[Corpus]:
    known = list(permutations(multi30k.LANGUAGES, 2))
    directions = known if pair == "all" else [direction for direction in known if "-".join(direction) == pair]
    if not directions:
        expected = " and ".join((", ".join(multi30k.LANGUAGES[:-1]), multi30k.LANGUAGES[-1]))
        raise CorpusError(f"multi30k:{pair}: expected all or an ordered pair of {expected}, as in multi30k:en-de")
    lines = {
        language: list(_decode_lines(f"multi30k:{pair}", multi30k.multi30k_text(folder, split, language)))
        for language in dict.fromkeys(chain(*directions))
    }
    return [
        _align(source, target, lines[source], lines[target], f"multi30k:{source}-{target}")
        for source, target in directions
    ]


def _read_files(source: Path, target: Path, links: Path | None = None) -> Corpus:
    languages = [_last_suffix(path) for path in (source, target)]
    corpus = _align(languages[0], languages[1], read_lines(source), read_lines(target), f"files:{source},{target}")
    return corpus if links is None else replace(corpus, links=[link.sure for link in read_links(links, corpus)])


def _read_tsv(path: Path) -> Corpus:
    pair = _last_suffix(path.with_name(path.name.removesuffix(".gz").removesuffix(".tsv")))
    source, _, target = pair.partition("-")
    if not source or not target:
        raise CorpusError(f"{path}: expected languages in the file name, as in pairs.en-de.tsv")
    rows = [line.split("\t") for line in read_lines(path)]
    for number, row in enumerate(rows, start=1):
        if len(row) != 2:  # noqa: PLR2004  a pair
            raise CorpusError(f"{path}: line {number}: expected source, tab, target, got {len(row)} columns")
    return _align(source, target, [row[0] for row in rows], [row[1] for row in rows], str(path))


def _last_suffix(path: Path) -> str:
    """Returns the language in a file name: `en` for `train.en` and `train.en.gz`."""
    suffix = Path(path.name.removesuffix(".gz")).suffix.removeprefix(".")
    if not suffix:
        raise CorpusError(f"{path}: expected a language in the file name, as in train.en or train.en.gz")
    return suffix


def _align(source_language: str, target_language: str, sources: list[str], targets: list[str], origin: str) -> Corpus:
    for language in (source_language, target_language):
        if not re.fullmatch("[a-z]{2,3}", language):
            raise CorpusError(f"{origin}: expected a language code of two or three letters a to z, got {language!r}")
    if len(sources) != len(targets):
        raise CorpusError(f"{origin}: expected equally many lines on both sides, got {len(sources)} and {len(targets)}")
    pairs = [(s, t) for s, t in zip(sources, targets, strict=True) if s.strip() and t.strip()]
    if not pairs:
        raise CorpusError(f"{origin}: expected at least one sentence pair")
    blank_pairs = len(sources) - len(pairs)
    return Corpus(source_language, target_language, [s for s, _ in pairs], [t for _, t in pairs], blank_pairs)


def _join(corpora: list[Corpus]) -> Corpus:
    return Corpus(
        *corpora[0].languages,
        [source for corpus in corpora for source in corpus.sources],
        [target for corpus in corpora for target in corpus.targets],
        sum(corpus.blank_pairs for corpus in corpora),
        [link for corpus in corpora for link in corpus.links or [frozenset()] * len(corpus)]
        if any(corpus.links for corpus in corpora)
        else [],
    )
