"""Chooses among cleaned pairs: removes repeated ones, limits translations of one text, and holds out documents."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

MAX_TRANSLATIONS = 3
# A document with more pairs is training data.
MAX_HELD_OUT_PAIRS = 300

# Documents in each of the two held-out parts, of 1,000.
HELD_OUT_PERMILLE = 15


class Row(NamedTuple):
    """A pair of sentences with its source, the role of the source, and its document."""

    source: str
    role: str
    document: str
    english: str
    other: str

    @property
    def pair(self) -> tuple[str, str]:
        """The English text and its translation."""
        return self.english, self.other


def select_rows(rows: Iterable[Row]) -> list[Row]:
    """Returns distinct pairs, with at most three translations of a text: the most frequent, then the first ones.

    A word that is spelled the same in both languages is not translated if the word has a translation.
    """
    rows = list(rows)
    translations: dict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        translations[row.english][row.other] += 1
    for english, counts in translations.items():
        if len(counts) > 1:
            counts.pop(english, None)
    kept = {
        (english, other)
        for english, counts in translations.items()
        for other, _ in counts.most_common(MAX_TRANSLATIONS)
    }
    selected: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row.pair in kept:
            selected.setdefault(row.pair, row)
    return list(selected.values())


class Parts(NamedTuple):
    """Training pairs, and pairs of documents that training data does not have."""

    train: list[Row]
    validation: list[Row]
    test: list[Row]


def split_by_document(rows: Iterable[Row]) -> Parts:
    """Holds out whole documents; a document is in the same part in every language.

    An English text remains only in the first of training, validation and test that has it.
    """
    documents: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        documents[row.source, row.document].append(row)
    parts = Parts([], [], [])
    for name, pairs in sorted(documents.items(), key=lambda document: _hash(document[0])):
        number = _hash(name) // HELD_OUT_PERMILLE
        parts[number if number in (1, 2) and len(pairs) <= MAX_HELD_OUT_PAIRS else 0].extend(pairs)
    known: set[str] = set()
    new_parts = []
    for part in parts:
        new_parts.append(select_rows(row for row in part if row.english.casefold() not in known))
        known |= {row.english.casefold() for row in part}
    return Parts(*new_parts)


def _hash(name: tuple[str, str]) -> int:
    """Returns a number below 1,000, the same on every machine."""
    return int.from_bytes(sha256("/".join(name).encode()).digest()[:8], "big") % 1000
