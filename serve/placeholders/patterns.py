"""Patterns of placeholders: parts of a text that a program replaces, or that stay the same in every language.

Every expression takes linear time: its repetitions are possessive or end at characters that they exclude.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal, get_args

PlaceholderKind = Literal[
    "tag", "url", "email", "mustache", "interpolation", "brace", "printf", "path", "mention", "hashtag"
]
KINDS: tuple[PlaceholderKind, ...] = get_args(PlaceholderKind)
# In the order of the kinds: the first one that matches at a place wins.
_EXPRESSIONS: dict[PlaceholderKind, str] = {
    # <x id="1"/>, <b>, </b>
    "tag": r"</?[A-Za-z][^<>\s/]*+(?:\s[^<>]*+)?/?>",
    # Of any scheme, since a model may join a word and an address. Without final punctuation, which is the sentence's.
    "url": r"\b(?:\w++://|www\.)[^\s<>\"{}|\\^`]*[^\s<>\"{}|\\^`.,;:!?)\]'\u2019\u201d\u00bb]",
    "email": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})++",
    # {{ name }}, {{{name}}}, {% if x %}
    "mustache": r"\{\{\{[^{}]*+\}\}\}|\{\{[^{}]*+\}\}|\{%[^%{}]*+%\}",
    # ${name}, #{name}, $name, $(name)
    "interpolation": r"[$#]\{[^{}]*+\}|\$\([\w. ]*+\)|\$[A-Za-z_]\w*+",
    # {}, {0}, {name!r:>5}, {0, number, #.##}, and the number of a plural
    "brace": (
        r"\{\s*+[\w.\[\]]*+(?:![rsa])?(?::[^{}]*+)?\s*+\}|\{\s*+\w++\s*+,\s*+[a-z]++\s*+(?:,[^{}]*+)?\}"
        r"|(?<![\w&])#(?![\w{])"
    ),
    # %s, %1$s, %-5.2f, %(name)s, %%; not that of "5%d"
    "printf": (
        r"%%|(?<!\d)%(?:(?:\(\w++\))?(?:\d{1,3}\$)?[-+#0']{0,5}(?:\*|\d{1,5})?+(?:\.(?:\*|\d{1,5})?+)?"
        r"(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcCsSpnr@])"
    ),
    # /usr/bin, ~/a.txt, ../b, C:\Users
    "path": r"(?<![\w/<:.])(?:~|\.\.?)?/[\w.+-]*\w(?:/[\w.+-]*\w)*+/?|\b[A-Za-z]:\\(?:[^\s\\/:*?\"<>|]++\\?)*+",
    "mention": r"(?<![\w@./])@\w(?:[\w-]*\w)?",
    "hashtag": r"(?<![\w#&/])#\d*+[^\W\d]\w*+",
}


@dataclass(frozen=True, slots=True)
class Placeholder:
    """A placeholder and its characters of a text."""

    start: int
    end: int
    kind: PlaceholderKind


class Finder:
    """Finds placeholders of some kinds."""

    def __init__(self, kinds: Collection[PlaceholderKind]) -> None:
        parts = [f"(?P<{kind}>{_EXPRESSIONS[kind]})" for kind in KINDS if kind in kinds]
        self._expression = re.compile("|".join(parts) or r"(?!)")

    def find(self, text: str) -> Iterator[Placeholder]:
        """Yields the placeholders of a text, which do not overlap, in their order."""
        kinds = dict[str, PlaceholderKind](zip(KINDS, KINDS, strict=True))
        for found in self._expression.finditer(text):
            yield Placeholder(*found.span(), kinds[str(found.lastgroup)])

    def runs(self, text: str) -> Iterator[list[Placeholder]]:
        """Yields the placeholders of a text; those with nothing between them, which are no tags, together."""
        run = list[Placeholder]()
        for each in self.find(text):
            if run and (run[-1].end < each.start or "tag" in (run[-1].kind, each.kind)):
                yield run
                run = []
            run.append(each)
        if run:
            yield run

    def texts(self, text: str) -> list[str]:
        """Returns the placeholders of a text, sorted."""
        return sorted(text[each.start : each.end] for each in self.find(text))
