"""Texts for the golden sentences of imported models: sentences of the source language, else words of the vocabulary.

Texts of words have no meaning: they only compare the server's translation with that of the reference.
"""

from collections.abc import Sequence
from itertools import cycle, islice
from pathlib import Path

from dragoman.export.source_model import Exportable
from dragoman.model.config import Direction
from dragoman.model.samples import Sample
from dragoman.model.tokenizer.tokenizer import WORD_START
from dragoman.serve.bundle.manifest import Multilingual

# One file per language, with a sentence per line.
SENTENCES = Path(__file__).with_name("sentences")


# Directions and sentences of each that stand for a multilingual model: a server translates them at every start.
FEW_DIRECTIONS, FEW_SENTENCES = 8, 6


def golden_samples(exportable: Exportable) -> list[Sample]:
    """Returns texts for every direction of a model, or for a few directions of a multilingual one."""
    if exportable.multilingual is not None:
        return _multilingual_samples(exportable, exportable.multilingual)
    return [
        Sample(Direction(source=direction.source, target=direction.target), text)
        for direction in exportable.directions
        for text in _texts_of(exportable, direction.source)
    ]


def _multilingual_samples(exportable: Exportable, multilingual: Multilingual) -> list[Sample]:
    """Returns texts for a chain of directions through languages with sentences, else through any."""
    codes = [language.language for language in multilingual.languages if "-" not in language.language]
    codes = sorted(codes, key=lambda code: not read_sentences(code))[:FEW_DIRECTIONS]
    return [
        Sample(Direction(source=source, target=target), text)
        for source, target in zip(codes, [*codes[1:], codes[0]], strict=True)
        for text in _texts_of(exportable, source)[:FEW_SENTENCES]
    ]


def _texts_of(exportable: Exportable, language: str) -> list[str]:
    """Returns the sentences of a language whose pieces the vocabulary has; texts of its words if there is none."""
    known = [text for text in read_sentences(language) if exportable.unk_id not in exportable.tokenizer.encode(text)]
    return known or golden_texts(exportable.tokenizer.source_pieces)


def read_sentences(language: str) -> list[str]:
    """Returns the sentences of a language; none if it is not one of those with a file."""
    path = SENTENCES / f"{language}.txt"
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []


TEXTS = 24
WORDS_OF_TEXTS = (1, 2, 3, 4, 5, 6, 8, 10)
# Vocabularies list common pieces first.
COMMON_PIECES = 2000


def golden_texts(pieces: Sequence[str]) -> list[str]:
    """Returns texts of several lengths, deterministically; an empty list if the vocabulary has no words."""
    letters = [piece for piece in pieces if piece.removeprefix(WORD_START).isalpha()]
    # In a script without spaces, no piece begins a word.
    words = [piece for piece in letters if piece.startswith(WORD_START)] or letters
    common = words[:COMMON_PIECES]
    if not common:
        return []
    endless = cycle(common[:: max(1, len(common) // sum(islice(cycle(WORDS_OF_TEXTS), TEXTS)))])
    lengths = islice(cycle(WORDS_OF_TEXTS), TEXTS)
    return ["".join(islice(endless, length)).replace(WORD_START, " ").strip() for length in lengths]
