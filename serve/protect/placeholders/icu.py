"""Messages of ICU: the text of their branches, such as in `{n, plural, one {# file} other {# files}}`, and its quotes.

An apostrophe before a brace, and before the number of a plural, begins a quotation. Two apostrophes mean one, also
inside of a quotation. Any other apostrophe means itself.
"""

import re
from collections.abc import Iterator

from dragoman.serve.protect.alignment import SENTENCE_MARKS
from dragoman.serve.protect.markup.references import Escaper

# Deeper messages are plain text.
MAX_LEVELS = 16
_BRANCHING = re.compile(r"\{\s*+[\w.-]++\s*+,\s*+(?:plural|select|selectordinal)\s*+,(?:\s*+offset:\d++)?")
_BRANCH = re.compile(r"\s*+[^\s{},']++\s*+\{")
_END = re.compile(r"\s*+\}")
_QUOTED = r"'[{}#](?:[^']|'')*+'?"
_SPECIAL = re.compile(rf"''|{_QUOTED}|[{{}}]")
# Quoted braces around a word, as in '{'name'}', are one quotation.
_APOSTROPHES = re.compile(rf"(?P<quoted>'\{{'[^'{{}}]*+'\}}'|{_QUOTED})|''")
# What belongs to the argument before it.
_CLOSING = re.compile(rf"[{re.escape(SENTENCE_MARKS)})\]\s]*+")
# Characters of a plain text that would be syntax.
_SYNTAX = re.compile(r"(?P<apostrophes>'+)(?P<before>(?=[{}#]|$))?|[{}]+")

Span = tuple[int, int]


class MessageEscaper(Escaper):
    """Writes text into a message: its characters are no syntax."""

    def __init__(self, escaper: Escaper, *, doubled: bool) -> None:
        """Extends the escaper of a document; `doubled`: every apostrophe is written as two, not only where it must."""
        self._escaper = escaper
        self._doubled = doubled

    def escape(self, text: str) -> str:
        """Returns the text with quotes, and with references as the document has them."""
        return self._escaper.escape(_SYNTAX.sub(self._quoted, text))

    def _quoted(self, found: re.Match[str]) -> str:
        if found["apostrophes"] is None:
            return f"'{found[0]}'"
        must = self._doubled or len(found[0]) > 1 or found["before"] is not None
        return found[0] * (1 + must)


def is_message(text: str) -> bool:
    """Returns whether a text may have branches."""
    return _BRANCHING.search(text) is not None


def find_quotes(text: str) -> Iterator[tuple[bool, int, int]]:
    """Yields the quotations of a message and its pairs of apostrophes: whether it is the former, and its characters."""
    for match in _APOSTROPHES.finditer(text):
        yield match["quoted"] is not None, *match.span()


class _MalformedError(Exception):
    """A text is no message."""


def find_texts(text: str) -> list[Span]:
    """Returns the parts of a text that are translated: all of it, or what is outside of the syntax of branches."""
    if not is_message(text):
        return [(0, len(text))]
    spans = list[Span]()
    try:
        _read_message(text, 0, 0, spans)
    except _MalformedError:
        return [(0, len(text))]
    return sorted(span for span in spans if text[slice(*span)].strip())


def _read_message(text: str, position: int, level: int, spans: list[Span]) -> int:
    """Adds the texts of a message; returns the offset of the brace that ends it, or the end of the text."""
    if level > MAX_LEVELS:
        raise _MalformedError
    start = position
    for found in _specials(text, position):
        if found < position:
            continue
        if text[found] == "}":
            if level == 0:
                raise _MalformedError
            spans.append((start, found))
            return found
        if branching := _BRANCHING.match(text, found):
            spans.append((start, found))
            start = position = _end_of(_CLOSING, text, _read_branches(text, branching.end(), level, spans))
        else:
            position = _end_of_argument(text, found)
    if level:
        raise _MalformedError
    spans.append((start, len(text)))
    return len(text)


def _specials(text: str, position: int) -> Iterator[int]:
    """Yields the offsets of braces that are not quoted."""
    for match in _SPECIAL.finditer(text, position):
        if not match[0].startswith("'"):
            yield match.start()


def _read_branches(text: str, position: int, level: int, spans: list[Span]) -> int:
    """Adds the texts of all branches; returns the offset after the argument."""
    while branch := _BRANCH.match(text, position):
        position = _read_message(text, branch.end(), level + 1, spans) + 1
    end = _END.match(text, position)
    if end is None:
        raise _MalformedError
    return end.end()


def _end_of(expression: re.Pattern[str], text: str, position: int) -> int:
    match = expression.match(text, position)
    return position if match is None else match.end()


def _end_of_argument(text: str, position: int) -> int:
    level = 0
    for found in _specials(text, position):
        level += 1 if text[found] == "{" else -1
        if level == 0:
            return found + 1
    raise _MalformedError
