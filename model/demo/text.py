"""Texts in two languages whose words carry links.

A link is a mark behind a word: `the~s_a dog~s_c` and `der~s_a Hund~s_c`. Words of both languages with a common link
translate each other. A word may have several links or none.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import count, repeat
from typing import NamedTuple

_LINK = re.compile(r"~\w+")
_CAN_NOT = re.compile(r"\bcan(~\w+) not\b")
# Neither a slot nor punctuation.
_WORD = re.compile(r"(?<!\S)\w\S*")


def join(*parts: str) -> str:
    """Joins words by blanks and omits empty ones."""
    return " ".join(filter(None, parts))


def mark(text: str, link: object = "", *, numbered: bool = False) -> str:
    """Puts a link behind each word, or with `numbered` the number of the word."""
    links: Iterator[object] = count() if numbered else repeat(link)
    return _WORD.sub(lambda word: f"{word[0]}~{next(links)}", text)


class Text(NamedTuple):
    """A text in both languages, with links."""

    english: str = ""
    german: str = ""

    @classmethod
    @cache
    def parse(cls, entry: str) -> "Text":
        """Reads `today = heute`. Without links in it, links words in order, or all of them if their numbers differ."""
        english, german = entry.split(" = ")
        if "~" in entry:
            return cls(english, german)
        numbered = len(_WORD.findall(english)) == len(_WORD.findall(german))
        return cls(mark(english, "a", numbered=numbered), mark(german, "a", numbered=numbered))

    def within(self, name: str) -> "Text":
        """Returns the text with links that no text within another name has."""
        return Text(self.english.replace("~", f"~{name}_"), self.german.replace("~", f"~{name}_"))

    def filled(self, slot: str, value: "Text") -> "Text":
        """Returns the text with another one in the place of a slot, such as `<hour>`."""
        return Text(self.english.replace(f"<{slot}>", value.english), self.german.replace(f"<{slot}>", value.german))

    def sentence(self) -> "Text":
        """Adds a capital letter at the start, and a period at the end of a statement."""
        sides = (side.replace(" ,", ",").removesuffix(" ?") for side in self)
        end = "?" if self.german.endswith("?") else "."
        english, german = (f"{side[0].upper()}{side[1:]}{end}" for side in sides)
        return Text(_CAN_NOT.sub(r"cannot\1", english), german)

    def plain(self) -> "Text":
        """Returns both texts without links."""
        return Text(*(_LINK.sub("", side) for side in self))

    def alignment(self) -> Iterator[tuple[int, int]]:
        """Yields the indices of an English and a German word for each pair with a common link. Indices count from 0."""
        english, german = ([set(_LINK.findall(word)) for word in side.split()] for side in self)
        for i, source in enumerate(english):
            yield from ((i, j) for j, target in enumerate(german) if source & target)
