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
# A character of an address. Those that close a sentence, a quotation or a bracket do not end one.
_ADDRESS = r"[^\s<>\"{}|\\^`()\[\]]"
_ADDRESS_END = r"(?<![.,;:!?'\u2019\u201d\u00bb])"
# Braces and what is in them, up to two levels deeper.
_BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*+\})*+\})*+\}"
# The order is that of the kinds: the first one that matches at an index wins.
_EXPRESSIONS: dict[PlaceholderKind, str] = {
    # <x id="1"/>, <b>, </b>, <%= name %>
    "tag": r"</?[A-Za-z][^<>\s/]*+(?:\s[^<>]*+)?/?>|<%(?:[^%<]|%(?!>))*+%>",
    # The scheme may be any, since a model may join a word and an address. Brackets occur in pairs.
    "url": (
        r"(?<![\w+.-])(?:[A-Za-z][\w+.-]{0,63}+://|www\.|(?:mailto|tel|sms|sips?|xmpp|urn|magnet):)"
        rf"(?=[^\s.,;:!?])(?:{_ADDRESS}|\({_ADDRESS}*+\)|\[{_ADDRESS}*+\])*{_ADDRESS_END}"
    ),
    # a@example.org, o'neil+news@example.org, a@[192.0.2.1]
    "email": (
        r"(?<![\w.+-])\w[\w.+%'!#&=~*-]{0,63}@"
        r"(?:[\w-]{1,63}(?:\.[\w-]{1,63})++|\[[\w.:]{1,64}\])"
    ),
    # {{ name }}, {{{name}}}, {{ {a: 1} | json }}, {% if x %}
    "mustache": r"\{\{\{[^{}]*+\}\}\}|\{\{(?:[^{}]|\{[^{}]*+\})*+\}\}|\{%[^%{}]*+%\}",
    # $t(key, {"count": {{n}}}), ${name}, #{name}, %{name}, $name, $(name), %name%, :name, and @:key of Vue
    "interpolation": (
        rf"\$t\((?:[^(){{}}]|{_BRACES})*+\)|[$#%]\{{(?:[^{{}}]|\{{[^{{}}]*+\}})*+\}}|\$\([\w. ]*+\)|\$[A-Za-z_]\w*+"
        r"|(?<![\d%])%[A-Za-z_][\w.-]*\w%(?![\w%])|(?<![\w:/.)\]]):[A-Za-z_]\w*+:?+"
        r"|(?<!\w)@(?:\.\w++)?:(?:\([\w.]++\)|\w+(?:\.\w+)*+)"
    ),
    # {}, {0}, {name!r:>5}, {0,10:N2}, {$name}, {'@'}, {0, number, #.##}, and the number of a plural, also as an ordinal
    "brace": (
        r"\{\s*+\$?[\w.\[\]-]*+(?:,\s*+-?\d++)?(?:![rsa])?(?::(?:[^{}]|\{[^{}]*+\})*+)?\s*+\}|\{'[^'{}]*+'\}"
        r"|\{\s*+\w++\s*+,\s*+[a-z]++\s*+(?:,[^{}]*+)?\}|(?<![\w&])#(?:(?:st|nd|rd|th)(?!\w)|(?![\w{]))"
    ),
    # %s, %1$s, %-5.2f, %(name)s, %<name>d, %%, %1 and %L1 of Qt; not that of "5%d"
    "printf": (
        r"%%|(?<!\d)%(?:(?:\(\w++\)|<\w++>)?(?:\d{1,3}\$)?[-+#0']{0,5}(?:\*|\d{1,5})?+(?:\.(?:\*|\d{1,5})?+)?"
        r"(?:hh|h|ll|l|L|q|j|z|t)?[diouxXeEfFgGaAcCsSpnr@]|L?\d{1,2}(?![\w%$]))"
    ),
    # /usr/bin, ~/a.txt, ../b, C:\Users, \\server\share
    "path": (
        r"(?<![\w/<:.])(?:~|\.\.?)?/[\w.+-]*\w(?:/[\w.+-]*\w)*+/?"
        r"|(?:\b[A-Za-z]:\\|(?<!\\)\\\\(?=\w))(?:[^\s\\/:*?\"<>|]++\\)*+(?:[^\s\\/:*?\"<>|]*[^\s\\/:*?\"<>|.,;!)\]'])?"
    ),
    # @anna, @anna.smith, @anna@social.example, @angular/core
    "mention": r"(?<![\w@./])@\w+(?:[.-]\w+)*+(?:@[\w-]++(?:\.[\w-]++)++|/\w+(?:[.-]\w+)*+)?",
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
