"""The tokenizer of models that split words themselves: Moses' rules cut text into words, byte pair encoding cuts these.

Older packages of Argos Translate have it. The library `sacremoses` has the rules of Moses. A unit that does not end its
word has the suffix `@@`. Imports no torch.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from dragoman.model.tokenizer.bpe import Merges
from dragoman.model.tokenizer.tokenizer import Offsets, TokenizerError
from dragoman.model.tokenizer.vocabularies import VocabularyTokenizer

JOINT = "@@"
# What SentencePiece writes for an unknown piece.
UNKNOWN_TEXT = "\u2047"
# How far the characters of a word may be from where the word before it ended.
MAX_SKIPPED = 16
# Characters that Moses escapes, `&` last.
ESCAPED = {
    "&#124;": "|",
    "&lt;": "<",
    "&gt;": ">",
    "&apos;": "'",
    "&quot;": '"',
    "&#91;": "[",
    "&#93;": "]",
    "&amp;": "&",
}


class WordTokenizer(VocabularyTokenizer):
    """The rules of two languages, merges, and the vocabularies of both sides. Thread-safe."""

    def __init__(
        self,
        merges: bytes,
        languages: tuple[str, str],
        source_pieces: Sequence[str],
        target_pieces: Sequence[str],
        *,
        unknown_piece: str,
        special_pieces: Sequence[str],
    ) -> None:
        """Raises TokenizerError if the merges are damaged, or the library is not installed."""
        self.merges = merges
        self.languages = languages
        self._split = Merges(merges).split
        self._moses = _Moses(*languages)
        for pieces in (source_pieces, target_pieces):
            if unknown_piece not in pieces or unknown_piece in special_pieces:
                raise TokenizerError(f"unknown_piece: expected a piece of both vocabularies, got {unknown_piece}")
        super().__init__(source_pieces, target_pieces, unknown_piece=unknown_piece, special_pieces=special_pieces)

    def units(self, text: str) -> list[str]:
        """Returns the units of a text as written in a vocabulary."""
        return [unit for word in self._moses.words(text) for unit in self._units(word)]

    source_units = units
    target_units = units

    def _units(self, word: str) -> list[str]:
        *parts, last = self._split(word)
        return [*(f"{part}{JOINT}" for part in parts), last]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of target ids; special pieces are removed, the unknown one stays visible."""
        pieces = [self._shown(number) for number in ids if number not in self._vanishing]
        return self._moses.text(" ".join(pieces).replace(f"{JOINT} ", "").split(" ")) if pieces else ""

    def _shown(self, number: int) -> str:
        piece = self.target_pieces[number]
        return UNKNOWN_TEXT if piece == self.unknown_piece else piece

    def encode_offsets(self, text: str) -> Offsets:
        """Returns where each id of `encode` starts and ends in the text; none where the rules change characters."""
        return _offsets(text, [self._units(word) for word in self._moses.words(text)])

    def decode_offsets(self, ids: Sequence[int]) -> Offsets:
        """Returns where each target id starts and ends in the text of `decode`."""
        words: list[list[str]] = [[]]
        for number in ids:
            special = number in self._vanishing
            words[-1].append("" if special else self._shown(number))
            if not special and not words[-1][-1].endswith(JOINT):
                words.append([])
        return _offsets(self.decode(ids), words)


def _offsets(text: str, words: Sequence[Sequence[str]]) -> Offsets:
    """Returns the spans of the units of words, found one after the other; a word that is not found has none."""
    return [span for units, start in _spans(text, words) for span in _unit_spans(units, start)]


def _spans(text: str, words: Sequence[Sequence[str]]) -> Iterator[tuple[Sequence[str], tuple[int, int]]]:
    end = 0
    for units in words:
        word = _unescaped("".join(unit.removesuffix(JOINT) for unit in units))
        found = text.find(word, end, end + len(word) + MAX_SKIPPED) if word else -1
        start, end = (found, found + len(word)) if found >= 0 else (end, end)
        yield units, (start, end)


def _unit_spans(units: Sequence[str], span: tuple[int, int]) -> Offsets:
    """Divides the span of a word among its units; each has all of it if a unit has a part of an escaped character."""
    start, end = span
    ends = list(accumulate(len(_unescaped(unit.removesuffix(JOINT))) for unit in units))
    if start == end or not ends or ends[-1] != end - start:
        return [span] * len(units)
    return [(start + first, start + last) for first, last in zip([0, *ends[:-1]], ends, strict=True)]


def _unescaped(word: str) -> str:
    for escaped, character in ESCAPED.items():
        word = word.replace(escaped, character)
    return word


class _Moses:
    def __init__(self, source: str, target: str) -> None:
        try:
            from sacremoses.normalize import MosesPunctNormalizer  # noqa: PLC0415 - only this tokenizer needs it
            from sacremoses.tokenize import MosesDetokenizer, MosesTokenizer  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise TokenizerError("requires the library sacremoses: pip install sacremoses") from error
        self._normalizer: Any = MosesPunctNormalizer(source)
        self._tokenizer: Any = MosesTokenizer(source)
        self._detokenizer: Any = MosesDetokenizer(target)

    def words(self, text: str) -> list[str]:
        """Returns the words of a text, with normal punctuation and escaped characters."""
        tokens = self._tokenizer.tokenize(self._normalizer.normalize(text))
        return [word for word in " ".join(tokens).strip("\r\n ").split(" ") if word]

    def text(self, words: Sequence[str]) -> str:
        """Returns the text of words."""
        return str(self._detokenizer.detokenize(list(words)))
