"""Byte pair encoding of words (Sennrich et al. 2016, arXiv:1508.07909), with the files of subword-nmt.

A file lists pairs of symbols, the one to merge first at the top. Its first line may be `#version: 0.2`. The end of a
word is marked by `</w>`, which is a symbol of its own before version 0.2.
"""

import heapq
import io
import re
from functools import lru_cache

from dragoman.model.tokenizer.tokenizer import TokenizerError

WORD_END = "</w>"
VERSION = re.compile(r"#version:\s*0\.([12])(\.0+)*\s*")
MAX_CACHED_WORDS = 1 << 14


class Merges:
    """The merges of a file. Thread-safe."""

    def __init__(self, content: bytes) -> None:
        """Reads a file; raises TokenizerError if a line is no pair of symbols."""
        try:
            lines = list(io.StringIO(content.decode(), newline=None))
        except UnicodeDecodeError as error:
            raise TokenizerError("merges: not UTF-8") from error
        version = VERSION.fullmatch(lines[0]) if lines else None
        if version is None and lines and lines[0].startswith("#version:"):
            raise TokenizerError(f"merges: {lines[0].strip()}: expected 0.1 or 0.2")
        self._marks_last = version is not None and version[1] == "2"
        self._ranks: dict[tuple[str, str], int] = {}
        for number, line in enumerate(lines[version is not None :]):
            first, _, second = line.strip("\r\n ").partition(" ")
            if not first or not second or " " in second:
                raise TokenizerError(f"merges: line {number + 1 + (version is not None)}: expected two symbols")
            self._ranks.setdefault((first, second), number)
        self.split = lru_cache(MAX_CACHED_WORDS)(self._split)

    def _split(self, word: str) -> tuple[str, ...]:
        """Splits a word into units. Takes O(n log n) for n characters."""
        if len(word) == 1:
            return (word,)
        symbols: list[str] = [*word[:-1], word[-1] + WORD_END] if self._marks_last else [*word, WORD_END]
        *units, last = _Merging(symbols, self._ranks).run()
        last = last.removesuffix(WORD_END)
        return (*units, last) if last else tuple(units)


class _Merging:
    """The symbols of a word as a linked list, and its pairs in the order of their merges."""

    def __init__(self, symbols: list[str], ranks: dict[tuple[str, str], int]) -> None:
        self._symbols: list[str | None] = [*symbols]
        self._ranks = ranks
        self._end = len(symbols)
        self._next = list(range(1, self._end + 1))
        self._previous = list(range(-1, self._end - 1))
        self._waiting: list[tuple[int, int]] = []
        for index in range(self._end - 1):
            self._add(index)

    def run(self) -> list[str]:
        """Merges all occurrences of the first pair, then of the next, as long as there are any."""
        while self._waiting:
            rank = self._waiting[0][0]
            indices = []
            while self._waiting and self._waiting[0][0] == rank:
                indices.append(heapq.heappop(self._waiting)[1])
            # A pair that a merge creates waits until all pairs of this rank are merged.
            for index in [index for index in indices if self._merge(index, rank)]:
                self._add(self._previous[index])
                self._add(index)
        return [symbol for symbol in self._symbols if symbol is not None]

    def _rank(self, index: int) -> int | None:
        first = self._symbols[index] if index >= 0 else None
        following = self._next[index] if first is not None else self._end
        second = self._symbols[following] if following < self._end else None
        return None if first is None or second is None else self._ranks.get((first, second))

    def _add(self, index: int) -> None:
        rank = self._rank(index)
        if rank is not None:
            heapq.heappush(self._waiting, (rank, index))

    def _merge(self, index: int, rank: int) -> bool:
        """Merges a symbol with the next one, unless an earlier merge changed the pair."""
        if self._rank(index) != rank:
            return False
        following = self._next[index]
        self._symbols[index] = f"{self._symbols[index]}{self._symbols[following]}"
        self._symbols[following] = None
        self._next[index] = self._next[following]
        if self._next[index] < self._end:
            self._previous[self._next[index]] = index
        return True
