"""Reads the project's own sentences and words: tables of English, German, French and Czech, a row per sentence."""

from collections.abc import Iterator
from pathlib import Path

from dragoman.model.data.corpus import read_lines
from dragoman.model.errors import CorpusError

LANGUAGES = ("en", "de", "fr", "cs")
EVERYDAY = Path(__file__).parents[2] / "everyday"


def read_everyday(pattern: str, language: str) -> Iterator[tuple[str, str]]:
    """Yields English and another side of the rows of matching tables.

    Raises CorpusError if there are none, as in images that serve, or if a row lacks a language.
    """
    column = LANGUAGES.index(language)
    if not (paths := sorted(EVERYDAY.glob(pattern))):
        raise CorpusError(f"{EVERYDAY / pattern}: no such file: expected a clone, a wheel or the image `train`")
    for path in paths:
        for number, line in enumerate(read_lines(path), start=1):
            cells = line.split("\t")
            if len(cells) != len(LANGUAGES) or not all(map(str.strip, cells)):
                raise CorpusError(f"{path}: line {number}: expected a text in each of {', '.join(LANGUAGES)}")
            yield cells[0], cells[column]
