"""Entries of glossaries, and their limits."""

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import getsizeof

MAX_CHARACTERS = 256
MAX_TARGETS = 16
MAX_ENTRIES = 100_000
# The entries of a dictionary take at most this much memory: its index stays in memory while it is used.
MAX_DICTIONARY_BYTES = 48 << 20
# An entry in an index takes this much besides its strings: objects and the first word, as measured.
_ENTRY_BYTES = 220
# Control characters and surrogates.
_REFUSED = frozenset({"Cc", "Cs"})


class EntryError(Exception):
    """An invalid entry, its index from 0, and what is wrong with it."""

    def __init__(self, index: int, problem: str) -> None:
        super().__init__(f"entry {index}: {problem}")
        self.index = index
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Entry:
    """A term and its translations.

    Attributes:
        source: the term.
        targets: forms of its translation, the preferred one first; at least one.
        match_case: whether letter case must match, in the text and in its translation.
    """

    source: str
    targets: tuple[str, ...]
    match_case: bool = False

    @classmethod
    def of(cls, source: str, targets: Sequence[str] = (), *, match_case: bool = False) -> "Entry":
        """Returns an entry without surrounding white space and repeated forms; without targets, the term stays."""
        forms = dict.fromkeys(filter(None, map(str.strip, targets)))
        return cls(source.strip(), tuple(forms) or (source.strip(),), match_case)

    @property
    def translated(self) -> bool:
        """Whether the term changes; otherwise it stays as the text spells it."""
        return self.targets != (self.source,)

    @property
    def size_bytes(self) -> int:
        """Its memory in an index, measured within a sixth; without the text in lower case, if that differs."""
        return _ENTRY_BYTES + sum(map(getsizeof, {self.source, *self.targets}))


def check_entries(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Returns valid entries of one dictionary; raises EntryError naming the first invalid or excessive one."""
    checked = tuple(entries)
    if len(checked) > MAX_ENTRIES:
        raise EntryError(MAX_ENTRIES, f"expected at most {MAX_ENTRIES} entries")
    sources = set[str]()
    size_bytes = 0
    for index, entry in enumerate(checked):
        if len(entry.targets) > MAX_TARGETS:
            raise EntryError(index, f"{len(entry.targets)} targets, expected at most {MAX_TARGETS}")
        for text in (entry.source, *entry.targets):
            _check_text(index, text)
        size_bytes += entry.size_bytes
        if size_bytes > MAX_DICTIONARY_BYTES:
            raise EntryError(index, f"expected entries that take at most {MAX_DICTIONARY_BYTES} bytes of memory")
        if entry.source in sources:
            raise EntryError(index, f"expected each source once, got {entry.source!r} twice")
        sources.add(entry.source)
    return checked


def _check_text(index: int, text: str) -> None:
    if not text:
        raise EntryError(index, "an empty term, expected text")
    if len(text) > MAX_CHARACTERS:
        raise EntryError(index, f"a term of {len(text)} characters, expected at most {MAX_CHARACTERS}")
    if not text.isprintable() and any(unicodedata.category(character) in _REFUSED for character in text):
        raise EntryError(index, "a control character, expected text of one line")
