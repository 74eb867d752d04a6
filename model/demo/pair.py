"""The value that every rule of the demo grammar makes: the same words in English and in German.

Knows nothing about grammar. Used for whole sentences as well as for parts such as `on Monday` / `am Montag`.
"""

from typing import NamedTuple


class Pair(NamedTuple):
    """A piece of text in both languages."""

    english: str
    german: str


NOTHING = Pair("", "")


def join(*parts: str) -> str:
    """Joins words by blanks and leave out what is empty."""
    return " ".join(filter(None, parts))


def sentence(pair: Pair, mark: str = ".") -> Pair:
    """Starts with a capital letter and end with a mark."""
    english, german = pair
    return Pair(f"{english[0].upper()}{english[1:]}{mark}", f"{german[0].upper()}{german[1:]}{mark}")
