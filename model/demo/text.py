"""Texts in two languages whose words carry links.

A link is a mark behind a word: `the~1_a dog~1_c` and `der~1_a Hund~1_c`. Words of both languages with a common link
translate each other. A word may have several links or none.
"""

import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple

_LINK = re.compile(r"~\w+")
_CAN_NOT = re.compile(r"\bcan(~\w+) not\b")


def join(*parts: str) -> str:
    """Joins words by blanks and omits empty ones."""
    return " ".join(filter(None, parts))


def mark(text: str, link: str) -> str:
    """Puts a link behind each word."""
    return join(*(f"{word}~{link}" for word in text.split()))


def _linkable(word: str) -> bool:
    """Returns whether a word is neither a slot nor punctuation."""
    return word[0].isalnum()


def _mark_words(words: list[str], *, numbered: bool) -> str:
    places = itertools.count()
    return join(*(f"{word}~{next(places) if numbered else 'a'}" if _linkable(word) else word for word in words))


class Text(NamedTuple):
    """A text in both languages, with links."""

    english: str = ""
    german: str = ""

    @classmethod
    def parse(cls, entry: str) -> "Text":
        """Reads `today = heute`. Without links in it, links words in order, or all of them if their numbers differ."""
        english, german = (side.split() for side in entry.split(" = "))
        if "~" in entry:
            return cls(join(*english), join(*german))
        counts = [sum(map(_linkable, side)) for side in (english, german)]
        numbered = counts[0] == counts[1]
        return cls(_mark_words(english, numbered=numbered), _mark_words(german, numbered=numbered))

    @classmethod
    def joined(cls, *texts: "Text") -> "Text":
        """Joins texts in both languages."""
        return cls(*(join(*side) for side in zip(*texts, strict=True)))

    def numbered(self, number: int) -> "Text":
        """Returns the text with links that no text with another number has."""
        return Text(self.english.replace("~", f"~{number}_"), self.german.replace("~", f"~{number}_"))

    def sentence(self) -> "Text":
        """Adds a capital letter at the start, and a period at the end of a statement."""
        sides = (side.replace(" ,", ",").removesuffix(" ?") for side in self)
        mark = "?" if self.german.endswith("?") else "."
        english, german = (f"{side[0].upper()}{side[1:]}{mark}" for side in sides)
        return Text(_CAN_NOT.sub(r"cannot\1", english), german)

    def plain(self) -> "Text":
        """Returns both texts without links."""
        return Text(*(_LINK.sub("", side) for side in self))

    def alignment(self) -> Iterator[tuple[int, int]]:
        """Yields the indices of an English and a German word for each pair with a common link. Indices count from 0."""
        english, german = ([set(_LINK.findall(word)) for word in side.split()] for side in self)
        for i, source in enumerate(english):
            yield from ((i, j) for j, target in enumerate(german) if source & target)
