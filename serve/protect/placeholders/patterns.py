"""Placeholders: parts of a text that a program replaces, or that stay the same in every language."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from dragoman.tables import read_table

PlaceholderKind = Literal[
    "tag", "url", "email", "mustache", "interpolation", "brace", "printf", "path", "mention", "hashtag"
]
KINDS: tuple[PlaceholderKind, ...] = get_args(PlaceholderKind)
_EXPRESSIONS: dict[PlaceholderKind, list[str]] = read_table(__file__, "patterns.yaml")


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder and its characters of a text."""

    start: int
    end: int
    kind: PlaceholderKind


class Finder:
    """Finds placeholders of some kinds."""

    def __init__(self, kinds: Collection[PlaceholderKind]) -> None:
        parts = [f"(?P<{kind}>{'|'.join(_EXPRESSIONS[kind])})" for kind in KINDS if kind in kinds]
        # Where a word goes on, no placeholder begins.
        self._expression = re.compile(rf"(?:(?<!\w)|(?!\w))(?:{'|'.join(parts) or '(?!)'})")

    def find(self, text: str) -> Iterator[Placeholder]:
        """Yields the placeholders of a text, which do not overlap, in their order."""
        kinds = dict[str, PlaceholderKind](zip(KINDS, KINDS, strict=True))
        for match in self._expression.finditer(text):
            yield Placeholder(*match.span(), kinds[str(match.lastgroup)])

    def runs(self, text: str) -> Iterator[list[Placeholder]]:
        """Yields the placeholders of a text; those with nothing between them, which are no tags, together."""
        run = list[Placeholder]()
        for placeholder in self.find(text):
            if run and (run[-1].end < placeholder.start or "tag" in (run[-1].kind, placeholder.kind)):
                yield run
                run = []
            run.append(placeholder)
        if run:
            yield run

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Returns the characters of the placeholders of a text, in their order."""
        return [(placeholder.start, placeholder.end) for placeholder in self.find(text)]

    def texts(self, text: str) -> list[str]:
        """Returns the placeholders of a text, sorted."""
        return sorted(text[placeholder.start : placeholder.end] for placeholder in self.find(text))
