"""Finds the terms of a text: whole words, the longest term first, in linear time.

A term starts and ends where words do. The index has the lengths of all terms by their first word, so that a text needs
one look-up per word and length.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from sys import getsizeof

from dragoman.serve.protect.alignment import UNSPACED
from dragoman.serve.protect.terms.entry import Entry

# Marks that belong to the letter before them, where the standard library does not count them to words.
_MARKS = "\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
# Words; characters of scripts without spaces; other visible characters.
_UNIT = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])[\w{_MARKS}])++|\S")


@dataclass(frozen=True, slots=True)
class Match:
    """An entry, and the characters of a text that are its term."""

    start: int
    end: int
    entry: Entry


class TermIndex:
    """The terms of entries, of equal ones the first; `size_bytes` is its memory, within a sixth."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._entries: dict[str, list[Entry]] = {}
        self._lengths: dict[str, tuple[int, ...]] = {}
        # Most words begin terms of one length: they share a tuple.
        shared: dict[tuple[int, ...], tuple[int, ...]] = {}
        self.size_bytes = 0
        for entry in entries:
            folded = fold(entry.source)
            if folded in self._entries:
                self._entries[folded].append(entry)
            else:
                self._entries[folded] = [entry]
            first = _UNIT.search(folded)
            lengths = () if first is None else self._lengths.get(first[0], ())
            if first is not None and len(folded) not in lengths:
                found = tuple(sorted((*lengths, len(folded)), reverse=True))
                self._lengths[first[0]] = shared.setdefault(found, found)
            self.size_bytes += entry.size_bytes + (0 if folded is entry.source else getsizeof(folded))
        self.size_bytes += getsizeof(self._entries) + getsizeof(self._lengths)
        for value in self._entries.values():
            value.sort(key=attrgetter("match_case"), reverse=True)

    def longest(self, text: "UnitText", unit: re.Match[str]) -> Match | None:
        """Returns the longest term that starts with a unit of a text."""
        start = unit.start()
        for length in self._lengths.get(unit[0], ()):
            end = start + length
            if end not in text.ends:
                continue
            for entry in self._entries.get(text.folded[start:end], ()):
                if not entry.match_case or entry.source == text.text[start:end]:
                    return Match(start, end, entry)
        return None


class UnitText:
    """A text, also without letter case, its units in order, and their ends."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.folded = fold(text)
        self.units = list(_UNIT.finditer(self.folded))
        self.ends = {unit.end() for unit in self.units}


def find_terms(text: str, indexes: Sequence[TermIndex]) -> list[Match]:
    """Returns the terms of a text from left to right; they do not overlap.

    Of the terms that start at one offset, the longest one counts; of equal ones, that of the first index.
    """
    found, position = list[Match](), 0
    units = UnitText(text)
    for unit in units.units:
        if unit.start() < position:
            continue
        candidates = [match for index in indexes if (match := index.longest(units, unit)) is not None]
        if candidates:
            found.append(max(candidates, key=attrgetter("end")))
            position = found[-1].end
    return found


def find_form(text: "UnitText", form: str, *, match_case: bool) -> Iterator[tuple[int, int]]:
    """Yields where a text has a form of a term as whole words."""
    wanted = form if match_case else fold(form)
    within = text.text if match_case else text.folded
    starts = [unit.start() for unit in text.units]
    start = within.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        index = bisect_left(starts, start)
        if end in text.ends and index < len(starts) and starts[index] == start:
            yield start, end
        start = within.find(wanted, start + 1)


def fold(text: str) -> str:
    """Returns a text in lower case, character by character, so that offsets stay."""
    lower = text.lower()
    if lower == text:  # without a copy
        return text
    if len(lower) == len(text):
        return lower
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)
