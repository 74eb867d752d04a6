"""Character references: reads them in text, and escapes text so that none of it becomes markup.

No reference expands to more than two characters. Entities that a document declares are never expanded.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import unescape
from html.entities import html5

REPLACEMENT = "\ufffd"
_REFERENCE = re.compile(r"&(?:#(?:[0-9]++|[xX][0-9A-Fa-f]++);?|([A-Za-z][A-Za-z0-9]{0,31}+);?)")
# The digits of a number, with zeros in front.
_MAX_NUMBER_CHARACTERS = 100
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


@dataclass(frozen=True, slots=True)
class Reference:
    """A character reference; `value` is what it stands for, None: an entity of an external DTD, which is not read."""

    start: int
    end: int
    value: str | None


def find_references(text: str, start: int, end: int, *, xml: bool) -> Iterator[Reference]:
    """Yields the character references of a part of a document.

    HTML allows some without their semicolon. In XML, names of HTML stand for the same characters.
    """
    for match in _REFERENCE.finditer(text, start, end):
        if match[1] is None:
            yield Reference(*match.span(), _character(match[0]))
        elif xml:
            yield Reference(*match.span(), html5.get(f"{match[1]};"))
        elif name := _html_name(match[0][1:]):
            yield Reference(match.start(), match.start() + 1 + len(name), html5[name])


def decode_references(text: str) -> str:
    """Returns a text of HTML without tags with characters in place of its references."""
    pieces, position = list[str](), 0
    for reference in find_references(text, 0, len(text), xml=False):
        pieces += text[position : reference.start], reference.value or ""
        position = reference.end
    return "".join((*pieces, text[position:]))


def _character(reference: str) -> str:
    """Returns the character of a number."""
    # Python would refuse to read the digits of a longer number.
    return (unescape(reference) if len(reference) <= _MAX_NUMBER_CHARACTERS else "") or REPLACEMENT


def _html_name(text: str) -> str:
    """Returns the longest name at the beginning of a text; without one, an empty string."""
    if text in html5:
        return text
    return next((text[:length] for length in range(len(text) - 1, 1, -1) if text[:length] in html5), "")


class Escaper:
    """Escapes text; characters that a document always spells as references stay spelled that way."""

    def __init__(self, document: str, references: Sequence[Reference], text: str, *, plain: bool = False) -> None:
        """Learns the spellings of a document, given its text without references; in `plain` nothing is escaped."""
        spelled = dict[str, str]()
        for reference in references:
            spelling = document[reference.start : reference.end]
            if reference.value is not None and _can_be_spelled(reference.value) and spelling.endswith(";"):
                spelled.setdefault(reference.value, spelling)
        counts = Counter(reference.value for reference in references)
        always = {value: spelling for value, spelling in spelled.items() if text.count(value) <= counts[value]}
        # Markup is escaped in any case, but as the document does it.
        marks = {value: spelling for value, spelling in spelled.items() if value in _ESCAPES}
        self._table = str.maketrans({} if plain else {**_ESCAPES, **always, **marks})

    def escape(self, text: str) -> str:
        """Returns the text with references in place of `&`, `<`, `>` and the spelled characters."""
        return text.translate(self._table)


def _can_be_spelled(value: str) -> bool:
    """Returns whether a value is one character, and neither an ASCII letter, a digit, white space nor unknown."""
    if len(value) != 1 or value == REPLACEMENT:
        return False
    return not (value.isascii() and (value.isalnum() or value.isspace()))
